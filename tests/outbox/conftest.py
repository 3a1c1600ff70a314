"""
Let every test of this folder write events.
"""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def moves_tell(events: None) -> None:
    """
    Let moves write events.
    """
