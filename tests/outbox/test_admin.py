"""
Prove what the admin shows of events, what it hides, and who may put dead ones back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_logic import Transition
from django_logic.masking import MASK, without_secrets, without_values
from django_logic.outbox import Event, Undeliverable, relay, subscribe
from django_logic.outbox.models import DeliveryState, InboxEntry, OutboxDelivery, OutboxMessage, OutboxTally
from django_logic.outbox.subscribers import forget
from tests.admin_site import act, admin_installed, client_of, listed, page
from tests.app.models import Ticket
from tests.flows import Bind, declare

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGES = "/admin/django_logic_outbox/outboxmessage/"
DELIVERIES = "/admin/django_logic_outbox/outboxdelivery/"
LOCAL = "django_logic.outbox.publishers.local.Subscribers"


@pytest.fixture(autouse=True)
def admin_site() -> Iterator[None]:
    """
    Install the admin for the length of one test.
    """
    with admin_installed():
        yield


@pytest.fixture
def boss() -> Client:
    """
    Give the browser of a superuser.
    """
    return client_of(is_superuser=True)


@pytest.fixture
def refused() -> Iterator[list[str]]:
    """
    Give the keys of the objects whose events a subscriber refuses for good, all at first.
    """
    keys = ["*"]

    @subscribe("*")
    def refuse(event: Event) -> None:
        if "*" in keys or event.key in keys:
            raise Undeliverable("no such\nroute")

    yield keys
    forget(refuse)


def tell(key: str = "7", topic: str = "order.paid", **payload: Any) -> OutboxMessage:
    """
    Write an event by hand.
    """
    return OutboxMessage.objects.create(topic=topic, key=key, payload=payload)


def dead_ones(refused: list[str], *keys: str) -> list[int]:
    """
    Write an event for each key, and let it die in a relay.
    """
    for key in keys:
        tell(key)
    relay.drain("default")
    refused.clear()
    dead = OutboxDelivery.objects.filter(state=DeliveryState.DEAD).order_by("id").values_list("pk", flat=True)
    assert len(dead) == len(keys)
    return list(dead)


def test_events_are_listed_newest_first_with_the_state_of_their_deliveries(
    boss: Client, bind: Bind, ticket: Ticket, refused: list[str], settings: Any
) -> None:
    """
    The list has topic, key, time, and how far each delivery is.
    """
    bind(declare(Transition("open", ["new"], "opened")))
    ticket.flow.open()
    relay.drain("default")
    settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"shop": {"BACKEND": LOCAL}, "copy": {"BACKEND": LOCAL}}}
    second = tell(topic="order.paid")

    keys, text = listed(boss, MESSAGES), page(boss, MESSAGES)

    assert keys == [second.pk, OutboxMessage.objects.get(topic="ticket.opened").pk]
    assert '<td class="field-states">shop: pending, copy: pending</td>' in text
    assert '<td class="field-states">subscribers: dead</td>' in text
    assert f'<td class="field-key">{ticket.pk}</td>' in text


@pytest.mark.parametrize("address", [MESSAGES, DELIVERIES])
def test_lists_cost_the_same_queries_however_long_they_are(boss: Client, address: str) -> None:
    """
    Fifty events cost as many queries as five.
    """
    costs = []
    for count in (5, 45):
        for number in range(count):
            tell(str(number), amount=number)
        with CaptureQueriesContext(connection) as queries:
            rows = listed(boss, address)
        costs.append((len(rows), len(queries)))

    assert [rows for rows, _cost in costs] == [5, 50]
    assert costs[0][1] == costs[1][1]


def test_lists_read_no_payload(boss: Client) -> None:
    """
    What may be a quarter of a megabyte a row is read for the page of one event alone.
    """
    tell(amount=1)
    with CaptureQueriesContext(connection) as queries:
        page(boss, MESSAGES)
        page(boss, DELIVERIES)

    assert not [query for query in queries.captured_queries if '"payload"' in query["sql"].replace("`", '"')]


def test_events_are_found_by_topic_key_and_id(boss: Client) -> None:
    """
    The search of either list takes a topic, a key, or the id of an event.
    """
    first, second = tell("A-17", "order.paid"), tell("B-2", "parcel.sent")
    (theirs,) = first.deliveries.values_list("pk", flat=True)

    for word in ("A-17", "order.paid", str(first.pk)):
        assert listed(boss, MESSAGES, q=word) == [first.pk]
        assert listed(boss, DELIVERIES, q=word) == [theirs]
    assert listed(boss, MESSAGES, q=str(second.pk)) == [second.pk]


PAYLOAD: dict[str, Any] = {
    "total": "99.95",
    "api_token": "t0ps3cret",
    "lines": [{"sku": "shoe", "gift": None}, 170717],
    "to": {"street": "Elm Street", "password": {"old": "hunter2"}},
}


@pytest.mark.parametrize(
    ("rights", "sees_values"),
    [
        ({"permissions": ["view_outboxmessage"]}, False),
        ({"permissions": ["view_outboxmessage", "change_outboxmessage", "view_outboxdelivery"]}, False),
        ({"permissions": ["view_outboxmessage", "view_payload"]}, True),
        ({"is_superuser": True}, True),
    ],
)
def test_payload_is_redacted_without_its_own_permission(rights: dict[str, Any], sees_values: bool) -> None:
    """
    Its keys are shown to all, its values to those with ``view_payload``, and secrets to nobody.
    """
    message = tell(**PAYLOAD)

    text = page(client_of(**rights), f"{MESSAGES}{message.pk}/change/")

    assert [name in text for name in ("total", "api_token", "lines", "sku", "street", "password")] == [True] * 6
    assert [value in text for value in ("99.95", "&quot;shoe&quot;", "170717", "Elm Street")] == [sees_values] * 4
    assert [secret in text for secret in ("t0ps3cret", "hunter2")] == [False] * 2


def test_masks_keep_keys_and_hide_values() -> None:
    """
    One mask hides secrets only, the other every value; neither changes what it is given.
    """
    told = {**PAYLOAD, "empty": [], "none": {}}

    assert without_secrets(told) == {
        "total": "99.95",
        "api_token": MASK,
        "lines": [{"sku": "shoe", "gift": None}, 170717],
        "to": {"street": "Elm Street", "password": MASK},
        "empty": [],
        "none": {},
    }
    assert without_values(told) == {
        "total": MASK,
        "api_token": MASK,
        "lines": [{"sku": MASK, "gift": MASK}, MASK],
        "to": {"street": MASK, "password": MASK},
        "empty": [],
        "none": {},
    }
    assert told["api_token"] == "t0ps3cret"


def test_payload_can_not_be_guessed_by_narrowing_a_list() -> None:
    """
    A list that could be narrowed by what payloads hold would tell them bit by bit.
    """
    tell(total=5)
    client = client_of(permissions=["view_outboxmessage", "view_outboxdelivery"])
    probes = [
        (MESSAGES, {"payload__total__gte": "5"}),
        (MESSAGES, {"payload__contains": "5"}),
        (DELIVERIES, {"message__payload__total": "5"}),
        (DELIVERIES, {"message__payload__icontains": "5"}),
    ]

    assert [client.get(address, probe).status_code for address, probe in probes] == [400] * 4


def test_page_of_an_event_has_its_deliveries(boss: Client, refused: list[str]) -> None:
    """
    The deliveries of an event are part of its page, with the error of each, and lead to their own pages.
    """
    (pk,) = dead_ones(refused, "7")
    message = OutboxMessage.objects.get()

    text = page(boss, f"{MESSAGES}{message.pk}/change/")

    assert "Undeliverable: no such" in text
    assert f"{DELIVERIES}{pk}/change/" in text
    assert "Undeliverable: no such" in page(boss, f"{DELIVERIES}{pk}/change/")


def test_nothing_can_be_added_changed_or_deleted(boss: Client) -> None:
    """
    Even a superuser only looks: no form, no save, no delete, neither for events nor for deliveries.
    """
    message = tell()
    delivery = message.deliveries.get()

    for address, row in ((MESSAGES, message), (DELIVERIES, delivery)):
        text = page(boss, f"{address}{row.pk}/change/")
        assert ('name="_save"' in text, "deletelink" in text, "<input type=text" in text) == (False, False, False)
        assert "delete_selected" not in page(boss, address)
        assert boss.post(f"{address}{row.pk}/change/", {"topic": "x", "state": "sent"}).status_code == 403
        assert boss.post(f"{address}{row.pk}/delete/", {"post": "yes"}).status_code == 403
        assert boss.post(f"{address}add/", {"topic": "x"}).status_code == 403
        act(boss, address, "delete_selected", row.pk, post="yes")
    assert (OutboxMessage.objects.get().topic, OutboxDelivery.objects.get().state) == ("order.paid", "pending")


def test_deliveries_are_narrowed_by_state_and_destination(boss: Client, refused: list[str], settings: Any) -> None:
    """
    Dead letters are one click away, and so is one destination, also one that is gone from the settings.
    """
    dead = dead_ones(refused, "7")
    OutboxTally.objects.create(destination="fax", fate="sent")
    settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"copy": {"BACKEND": LOCAL}}}
    waiting = [tell("8").deliveries.get().pk]

    text = page(boss, DELIVERIES)

    assert ("?state=dead" in text, "dead letters" in text) == (True, True)
    assert [f"?destination={name}" in text for name in ("copy", "fax")] == [True, True]
    assert listed(boss, DELIVERIES, state="dead") == dead
    assert listed(boss, DELIVERIES, state="pending") == waiting
    assert listed(boss, DELIVERIES, state="bogus") == [*waiting, *dead]
    assert listed(boss, DELIVERIES, destination="copy") == waiting
    assert '<td class="field-short_error">subscribers' not in text
    assert "no such</td>" in text


def test_list_of_deliveries_tells_when_what_is_not_over_is_tried_next(boss: Client, refused: list[str]) -> None:
    """
    What is dead or sent has no next attempt.
    """
    dead_ones(refused, "7")
    only_dead = page(boss, DELIVERIES)
    tell("8")

    assert 'class="field-due">-<' in only_dead
    assert page(boss, DELIVERIES).count('class="field-due">-<') == 1


def test_replay_delivers_dead_ones_again_and_passes_over_the_rest(boss: Client, refused: list[str]) -> None:
    """
    The action says how many go out again and how many stay as they are; a relay then delivers them.
    """
    dead = dead_ones(refused, "7", "8", "9")
    waiting = tell("10").deliveries.get().pk

    said = act(boss, DELIVERIES, "replay", *dead[:2], waiting)

    assert said == ["2 dead letters are delivered again.", "1 delivery is not dead and stays as it is."]
    assert OutboxDelivery.objects.get(pk=dead[2]).state == "dead"
    assert OutboxDelivery.objects.get(pk=dead[0]).attempts == 0
    assert relay.drain("default") == 3
    assert act(boss, DELIVERIES, "replay", *dead)[-2:] == [
        "1 dead letter is delivered again.",
        "2 deliveries are not dead and stay as they are.",
    ]


def test_replay_of_all_that_is_listed_reaches_beyond_the_page(boss: Client, refused: list[str]) -> None:
    """
    "Select all" puts back every dead one, those of other pages too.
    """
    dead = dead_ones(refused, *(str(number) for number in range(102)))

    said = act(boss, DELIVERIES, "replay", dead[0], select_across="1")

    assert said == ["102 dead letters are delivered again."]


@pytest.mark.parametrize(
    "permissions",
    [
        [],
        ["view_outboxdelivery"],
        ["view_outboxdelivery", "view_outboxmessage", "change_outboxmessage", "view_payload"],
    ],
)
@pytest.mark.parametrize("more", [{}, {"select_across": "1"}])
def test_nobody_without_permission_replays(refused: list[str], permissions: list[str], more: dict[str, str]) -> None:
    """
    Who may not change deliveries puts nothing back, by no forged form and by no bulk action.
    """
    (dead,) = dead_ones(refused, "7")
    client = client_of(permissions=permissions)

    said = act(client, DELIVERIES, "replay", dead, **more)
    client.post(f"{DELIVERIES}{dead}/change/", {"action": "replay", "_selected_action": str(dead), "state": "pending"})

    assert "dead letter is delivered again" not in " ".join(said)
    assert OutboxDelivery.objects.get().state == "dead"
    assert client.get(DELIVERIES).status_code == (200 if permissions else 403)
    if permissions:
        assert 'value="replay"' not in page(client, DELIVERIES)


def test_those_who_may_change_deliveries_replay(refused: list[str]) -> None:
    """
    The right to change deliveries is enough, and it opens no form of a delivery.
    """
    (dead,) = dead_ones(refused, "7")
    client = client_of(permissions=["change_outboxdelivery"])

    said = act(client, DELIVERIES, "replay", dead)

    assert said == ["1 dead letter is delivered again."]
    assert client.post(f"{DELIVERIES}{dead}/change/", {"state": "sent"}).status_code == 403


class Copies:
    """
    Send who reads deliveries to a copy of the database.
    """

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        """
        Choose ``other`` for deliveries.
        """
        return "other" if model is OutboxDelivery else None


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_replay_writes_where_writes_go(boss: Client, refused: list[str], settings: Any) -> None:
    """
    Where readers are sent to a copy, the row that is put back is the one that relays read.
    """
    (dead,) = dead_ones(refused, "7")
    row = OutboxDelivery.objects.using("default").get()
    row.save(using="other", force_insert=True)
    settings.DATABASE_ROUTERS = [Copies()]

    said = act(boss, DELIVERIES, "replay", dead)

    assert said == ["1 dead letter is delivered again."]
    assert [OutboxDelivery.objects.using(alias).get().state for alias in ("default", "other")] == ["pending", "dead"]


def test_nobody_without_permission_sees_events() -> None:
    """
    Staff without rights on events is refused.
    """
    message = tell()
    client = client_of()
    addresses = (MESSAGES, DELIVERIES, f"{MESSAGES}{message.pk}/change/")

    assert [client.get(address).status_code for address in addresses] == [403] * 3


def test_tallies_and_taken_messages_have_no_page() -> None:
    """
    What only the library reads is not in the admin.
    """
    registered = set(admin.site._registry)

    assert registered & {OutboxMessage, OutboxDelivery, OutboxTally, InboxEntry} <= {OutboxMessage, OutboxDelivery}
