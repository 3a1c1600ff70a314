"""
Test that dead messages which others passed come in the order they were written, once they are put back.
"""

from __future__ import annotations

import pytest

from django_logic.outbox import relay
from django_logic.outbox.relay.claim import claim
from tests.outbox.deliveries import SUBSCRIBERS, fates, kill, row, rows_of, write

pytestmark = pytest.mark.django_db(transaction=True)


def test_passed_messages_come_back_in_their_order() -> None:
    """
    Dead ones that let others pass hold their key again, oldest first, with all their attempts, before what is new.
    """
    first, second, _passed = write("a", "a", "a")
    kill(first, second, attempts=10)
    assert relay.drain("default") == 1
    write("a")

    # The newer one is asked for first: its place does not depend on that.
    assert relay.replay([second, first]) == 2

    assert fates(first, second) == [("pending", 0), ("pending", 0)]
    assert row(first).is_open
    (run,) = rows_of(claim("default", SUBSCRIBERS))
    assert run[0] == first
    assert run[1:2] in ([second], [])
