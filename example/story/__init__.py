"""
The story that `make demo` tells: chapters that run the shop's code and check what comes back.
"""

from __future__ import annotations
