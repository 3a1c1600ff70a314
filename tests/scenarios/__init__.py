"""
Prove business stories told with the public interface.
"""

from __future__ import annotations
