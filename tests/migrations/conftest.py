"""
Give every migration test a yard of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.migrations.timeline import Timeline, timeline


@pytest.fixture
def line(transactional_db: None) -> Iterator[Timeline]:
    """
    Give a timeline on the default database.
    """
    with timeline() as line:
        yield line
