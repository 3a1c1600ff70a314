"""
Prove that the kit reads and delivers events as production does, and that its assertion fails when it should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from django_logic.background import PermanentFailure
from django_logic.outbox import subscribe
from django_logic.outbox.models import OutboxDelivery
from django_logic.outbox.subscribers import forget
from django_logic.testing import Scenario, advance

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("events")]


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """
    Give the topics a subscriber heard; what it is told of a lost parcel it can't take at first.
    """
    topics: list[str] = []
    failures = [RuntimeError("the mail server is away")]

    @subscribe("ticket.*")
    def hear(event: Any) -> None:
        if event.topic == "ticket.lost" and failures:
            raise failures.pop()
        topics.append(event.topic)

    yield topics
    forget(hear)


def test_events_of_a_journey_are_those_of_its_state_writes(parcels: Scenario) -> None:
    """
    Background work, busy state and end included, is told in order.
    """
    parcel = parcels.create_instance()

    parcels.transition(parcel, "pack")
    parcels.background_transition(parcel, "send")

    parcels.assert_events(parcel, ["ticket.packed", "ticket.sending", "ticket.sent"])


def test_wrong_events_fail_and_tell_the_journey(parcels: Scenario) -> None:
    """
    A failure names what was told, what was expected, and what was driven.
    """
    parcel = parcels.create_instance()
    parcels.transition(parcel, "pack")

    with pytest.raises(AssertionError) as caught:
        parcels.assert_events(parcel, ["ticket.sent"])

    assert "The events are ['ticket.packed'], expected ['ticket.sent']." in str(caught.value)
    assert "1. call pack: 'new' -> 'packed'" in str(caught.value)
    with pytest.raises(AssertionError):
        parcels.assert_events(parcel, [])
    with pytest.raises(TypeError, match="Put it in brackets"):
        parcels.assert_events(parcel, "ticket.packed")


def test_other_objects_events_are_not_this_ones(parcels: Scenario) -> None:
    """
    What a sibling told counts for nothing.
    """
    parcel, sibling = parcels.create_instance(), parcels.create_instance()

    parcels.transition(sibling, "pack")

    parcels.assert_events(parcel, [])


def test_assertion_without_the_app_says_what_to_install(parcels: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where nothing writes events, an empty list must not pass.
    """
    parcel = parcels.create_instance()
    monkeypatch.delitem(apps.app_configs, "django_logic_outbox")

    with pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS"):
        parcels.assert_events(parcel, [])


def test_events_are_delivered_inline_and_again_after_their_pause(
    parcels: Scenario, deliver_events: Callable[[], int], heard: list[str]
) -> None:
    """
    A subscriber that fails is called again once the pause has passed, which the clock of the kit does.
    """
    parcel = parcels.create_instance()
    parcels.transition(parcel, "pack")
    parcels.background_transition(parcel, "send", fail_side_effect="book_courier", fail_with=PermanentFailure("no van"))
    parcels.assert_events(parcel, ["ticket.packed", "ticket.sending", "ticket.lost"])

    assert deliver_events() == 2
    assert deliver_events() == 0
    assert heard == ["ticket.packed", "ticket.sending"]
    assert "mail server" in OutboxDelivery.objects.get(topic="ticket.lost").error
    advance(minutes=1)

    assert deliver_events() == 1
    assert heard == ["ticket.packed", "ticket.sending", "ticket.lost"]
