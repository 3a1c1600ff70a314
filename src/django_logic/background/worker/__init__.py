"""
The processes of `dl_worker`: a supervisor without a database, its children, its clerk and what they share.
"""

from __future__ import annotations
