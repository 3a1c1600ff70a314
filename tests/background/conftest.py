"""
Offer what the tests of background work share.
"""

from __future__ import annotations

from typing import Any

import pytest

from django_logic import Process
from tests.app.hooked import Diary
from tests.app.models import Ticket
from tests.background.flows import Flow, declare
from tests.flows import Bind


@pytest.fixture
def flow(bind: Bind) -> Flow:
    """
    Make and bind background processes for the length of one test.
    """

    def make(*transitions: Any, model: Any = Ticket, field: str = "state", **attributes: Any) -> type[Process]:
        return bind(declare(*transitions, **attributes), model, field)

    return make


@pytest.fixture
def diary() -> Diary:
    """
    Give an empty diary whose hooks write themselves down.
    """
    return Diary()
