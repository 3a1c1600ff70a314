"""
Test that a consumer takes each message once: its work and the note that it was done are one transaction.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic.outbox import inbox
from django_logic.outbox.models import InboxEntry
from tests.app.models import Ticket
from tests.races.together import Worker

pytestmark = pytest.mark.django_db(transaction=True)


def event(number: int = 1) -> Any:
    """
    Make something with an id.
    """
    return SimpleNamespace(id=f"message-{number}")


@inbox("counting")
def count(event: Any, note: str = "") -> str:
    """
    Write a row, and fail if asked to.
    """
    Ticket.objects.create(note=note)
    if note == "fail":
        raise OSError("no paper")
    return "done"


def test_message_is_taken_once() -> None:
    """
    The second time nothing is done; another message is another one.
    """
    answers = [count(event()), count(event()), count(event(2))]

    assert answers == ["done", None, "done"]
    assert Ticket.objects.count() == 2


def test_error_undoes_the_work_and_the_note() -> None:
    """
    What failed is taken when it comes again.
    """
    with pytest.raises(OSError, match="no paper"):
        count(event(), note="fail")
    assert (Ticket.objects.count(), InboxEntry.objects.count()) == (0, 0)

    assert count(event()) == "done"


def test_another_consumer_takes_the_same_message() -> None:
    """
    Each consumer has notes of its own.
    """

    @inbox("listing")
    def listing(event: Any) -> str:
        return "listed"

    assert (count(event()), listing(event()), listing(event())) == ("done", "listed", None)


def test_two_at_once_wait_for_each_other(only_postgres: None) -> None:
    """
    While one takes a message the other waits, and then does nothing.
    """
    is_in, may_go = threading.Event(), threading.Event()

    @inbox("slow")
    def slow(event: Any) -> str:
        is_in.set()
        assert may_go.wait(30)
        Ticket.objects.create()
        return "done"

    first = Worker(lambda: slow(event()))
    assert is_in.wait(30)
    second = Worker(lambda: slow(event()))
    second.until_it_waits()
    may_go.set()

    assert sorted([first.result(), second.result()], key=str) == [None, "done"]
    assert Ticket.objects.count() == 1


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_note_is_kept_where_the_consumer_writes() -> None:
    """
    With ``using`` the note and the transaction are those of that database, and an error there undoes both.
    """

    @inbox("far", using="other")
    def far(event: Any, note: str = "") -> str:
        Ticket.objects.using("other").create(note=note)
        if note == "fail":
            raise OSError("no paper")
        return "done"

    with pytest.raises(OSError, match="no paper"):
        far(event(), note="fail")
    undone = Ticket.objects.using("other").count()
    answers = [far(event()), far(event())]

    assert (undone, answers) == (0, ["done", None])
    assert (InboxEntry.objects.using("other").count(), InboxEntry.objects.count()) == (1, 0)


def test_id_may_come_from_anywhere() -> None:
    """
    ``message_id`` reads it from the consumer's arguments, such as a request.
    """

    @inbox("hooks", message_id=lambda request: request.headers["webhook-id"])
    def receive(request: Any) -> str:
        return "done"

    request = SimpleNamespace(headers={"webhook-id": "msg_1"})

    assert (receive(request), receive(request)) == ("done", None)


@pytest.mark.parametrize("found", [None, "", "x" * 256])
def test_message_without_a_fit_id_is_refused(found: Any) -> None:
    """
    Without an id nothing could be noted, so nothing is done.
    """
    with pytest.raises(ValueError, match="needs an id of 1 to 255 characters"):
        count(SimpleNamespace(id=found))

    assert Ticket.objects.count() == 0


@pytest.mark.parametrize("name", ["", " ", None, "x" * 256, count])
def test_consumer_without_a_fit_name_is_refused(name: Any) -> None:
    """
    A bare decorator or a wrong name is told at import.
    """
    with pytest.raises(ImproperlyConfigured, match="takes the name of a consumer"):
        inbox(name)
