"""
Hold the models of the workflow lesson as a project would have them.
"""

from __future__ import annotations
