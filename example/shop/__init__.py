"""
A corner shop: an app of four files worth copying (models, process, apps, warehouse).
"""

from __future__ import annotations
