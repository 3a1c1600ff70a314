"""
Prove the promises of the library, on every database it supports.
"""

from __future__ import annotations
