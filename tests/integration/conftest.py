"""
Offer a saved object and temporary bindings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.models import Ticket
from tests.flows import Bind, bindings


@pytest.fixture
def bind() -> Iterator[Bind]:
    """
    Bind processes for the length of one test.
    """
    with bindings() as bind:
        yield bind


@pytest.fixture
def ticket(db: None) -> Ticket:
    """
    Give a saved object in its first state, ``new``.
    """
    return Ticket.objects.create()


@pytest.fixture
def clerk(db: None, django_user_model: Any) -> Any:
    """
    Give a saved user without any right.
    """
    return django_user_model.objects.create_user("clerk")
