"""
Tests of what a project lives through over its migrations.
"""

from __future__ import annotations
