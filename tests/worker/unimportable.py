"""
Break as a module that needs something which is not there.
"""

from __future__ import annotations

raise RuntimeError("nothing can import this")
