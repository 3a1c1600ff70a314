"""
A corner shop: an app of files worth copying (models, process, subscribers, apps).
"""

from __future__ import annotations
