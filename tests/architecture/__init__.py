"""
Prove that the house stays as it was drawn, on the syntax trees of the installed package.
"""

from __future__ import annotations
