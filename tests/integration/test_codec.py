"""
Prove that keywords survive the JSON columns of every database, and that model instances come back as rows.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection, connections
from django.db.migrations.state import ProjectState
from django.test.utils import CaptureQueriesContext
from django.utils.functional import SimpleLazyObject
from hypothesis import HealthCheck, given, settings

from django_logic.background.codec import DEEPEST, LARGEST, decode, encode
from django_logic.background.exceptions import KwargsSerializationError, PermanentFailure, VanishedReference
from django_logic.models import StatusChange
from tests.app.models import (
    Base,
    Child,
    FromAbstract,
    Item,
    Numbered,
    Odd,
    Order,
    OrderProxy,
    Product,
    SlugDocument,
    StampedChild,
    Ticket,
    UuidDocument,
)
from tests.keyword_values import KEYWORDS, Line, Wording, told

pytestmark = pytest.mark.django_db(databases=["default", "other"])


@pytest.fixture
def column(db: None) -> StatusChange:
    """
    Give a row with a JSON column.
    """
    ids = {"transition_id": uuid.uuid4(), "root_id": uuid.uuid4()}
    return StatusChange.objects.create(occurred_at=datetime.now(UTC), sequence=1, **ids)


def through(column: StatusChange, keywords: dict[str, Any]) -> dict[str, Any]:
    """
    Store keywords in the column, load them from there, and decode them.
    """
    StatusChange.objects.filter(pk=column.pk).update(metadata=encode(keywords, "fulfil"))
    column.refresh_from_db()
    return decode(column.metadata, "default")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keywords=KEYWORDS)
def test_any_structure_survives_the_column(column: StatusChange, keywords: dict[str, Any]) -> None:
    """
    Whatever is accepted comes back from the database with names, values, types and the order of its dicts.
    """
    back = through(column, keywords)

    assert {name: told(value) for name, value in back.items()} == {name: told(keywords[name]) for name in keywords}


NUMBERS = [2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, 1.0, -0.0, 1e16, 1e308, 5e-324, 0.1 + 0.2, 1.5e-30, 0.1]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_survive_the_column(column: StatusChange, number: float) -> None:
    """
    No database turns a float into an integer, loses a sign, or rounds.
    """
    assert told(through(column, {"it": [number]})) == told({"it": [number]})


@pytest.mark.parametrize("names", ["ba", ["bb", "a"], ["é", "z"], ["a", ""], ["$type", "a"], "abc"])
def test_order_of_a_dict_survives_the_column(column: StatusChange, names: Any) -> None:
    """
    A dict is gone through in the order in which the caller filled it, although JSON columns sort their keys.
    """
    value = {name: dict.fromkeys(names, 1) for name in names}

    assert told(through(column, {"it": value})["it"]) == told(value)


@pytest.mark.parametrize(
    "wrap", [lambda it: [it], lambda it: (it,), lambda it: {"b": it, "a": 1}, lambda it: Line("a", it)]
)
@pytest.mark.parametrize("levels", [*range(8, 16), DEEPEST])
@pytest.mark.parametrize("leaf", [datetime.now(UTC), Wording.TREE], ids=["flat", "nested"])
def test_every_depth_survives_the_column(column: StatusChange, wrap: Any, levels: int, leaf: Any) -> None:
    """
    A structure as deep as the limit is stored everywhere, also where documents may have 31 levels only.
    """
    value: Any = {uuid.UUID(int=1): leaf}
    for _ in range(levels - 1):
        value = wrap(value)

    assert told(through(column, {"it": value})) == told({"it": value})


def test_largest_keywords_survive_the_column(column: StatusChange) -> None:
    """
    What just fits the limit fits every database.
    """
    keywords = {"body": "é" * ((LARGEST - 20) // 6)}

    assert through(column, keywords) == keywords


def made(model: Any, alias: str) -> Any:
    """
    Save an object of any model.
    """
    if model is Item:
        order, product = made(Order, alias), made(Product, alias)
        return Item.objects.using(alias).create(order=order, product=product)
    instance = model(**({"pk": "a/b é"} if model is SlugDocument else {}))
    instance.save(using=alias)
    return instance


MODELS = [Ticket, Order, OrderProxy, UuidDocument, SlugDocument, Base, Child, StampedChild, Numbered, FromAbstract, Odd]


@pytest.mark.parametrize("alias", ["default", "other"])
@pytest.mark.parametrize("model", [*MODELS, Item])
def test_instance_comes_back_from_its_row(column: StatusChange, model: Any, alias: str) -> None:
    """
    An object of any model and key comes back by its own class from its own database, hidden by its manager or not.
    """
    instance = made(model, alias)

    back = through(column, {"it": [{"deep": (instance,)}]})["it"][0]["deep"][0]

    assert (back, type(back), back._state.db) == (instance, model, alias)
    assert back is not instance


def test_instance_comes_back_as_the_row_is_now(column: StatusChange) -> None:
    """
    A reference is reloaded: hooks see what the row says when they run, not what the caller held.
    """
    ticket = Ticket.objects.create(note="then")
    ticket.note = "never saved"
    stored = encode({"it": ticket})
    Ticket.objects.filter(pk=ticket.pk).update(note="now")

    assert decode(stored, "default")["it"].note == "now"


def test_instances_are_keys_and_elements_too(column: StatusChange) -> None:
    """
    Objects stand wherever a value may stand.
    """
    one, two = Ticket.objects.create(), Ticket.objects.create()
    value = [{one: "a", (two, 1): "b"}, {one, two}, frozenset({two})]

    assert told(through(column, {"it": value})["it"]) == told(value)


def test_one_row_is_one_object_and_one_query(column: StatusChange) -> None:
    """
    Many references cost one query for each keyword and model, and the same row is the same object everywhere.
    """
    tickets = [Ticket.objects.create() for _ in range(30)]
    orders = [Order.objects.create() for _ in range(3)]
    stored = encode({"all": [*tickets, *orders, *tickets], "first": tickets[0]})

    with CaptureQueriesContext(connection) as queries:
        back = decode(stored, "default")

    assert back["all"] == [*tickets, *orders, *tickets]
    assert back["first"] is back["all"][0] is back["all"][33]
    assert len(queries) == 2


def test_keywords_without_references_ask_no_database() -> None:
    """
    Plain keywords cost no query.
    """
    stored = encode({"lines": [{"sku": "a", "count": (1, 2)}]})

    with CaptureQueriesContext(connections["default"]) as queries:
        decode(stored, "default")

    assert len(queries) == 0


def test_key_in_another_spelling_finds_its_row(column: StatusChange) -> None:
    """
    An object that was made with its key as text is the row all the same.
    """
    document = UuidDocument(pk="6F9619FF8B864011B42D00C04FC964FF")
    document.save()
    ticket = Ticket(pk="41")
    ticket.save()

    back = through(column, {"it": [document, ticket]})["it"]

    assert [item.pk for item in back] == [uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"), 41]


def test_lazy_user_of_a_request_is_the_user_behind_it(column: StatusChange) -> None:
    """
    ``request.user`` is stored as what it stands for.
    """
    user = User.objects.create(username="ann")

    back = through(column, {"approver": SimpleLazyObject(lambda: user)})["approver"]

    assert (type(back), back.username) == (User, "ann")


def test_reference_without_a_database_is_read_from_the_messages() -> None:
    """
    An object that names no database of its own is looked for beside the message.
    """
    there = Ticket.objects.using("other").create(note="there")
    there._state.db = None
    stored = encode({"it": there})

    assert decode(stored, "other")["it"].note == "there"


@pytest.mark.parametrize("model", [Ticket, UuidDocument, Child])
def test_vanished_instance_is_a_permanent_failure_that_names_it(column: StatusChange, model: Any) -> None:
    """
    Trying again can't bring a row back: the failure says which keyword missed which row where.
    """
    instance = made(model, "other")
    key = instance.pk
    stored = encode({"fine": made(model, "other"), "it": [instance]})
    instance.delete()

    with pytest.raises(VanishedReference) as caught:
        decode(stored, "default")

    assert isinstance(caught.value, PermanentFailure)
    assert f"keyword it refers to app.{model.__name__} {key!r} on 'other', which is gone" in str(caught.value)


def test_key_that_is_none_of_its_model_is_a_value_error() -> None:
    """
    A reference that no row could ever answer is damage, not a vanished object.
    """
    damaged = {"$type": "model", "model": "app.UuidDocument", "pk": "no uuid", "alias": "default"}

    with pytest.raises(ValueError, match="The stored keyword it can't be read; found ValidationError"):
        decode({"it": damaged}, "default")


def historical() -> Any:
    """
    Give an object as a migration sees it: of another class than the one a worker would load.
    """
    ticket = ProjectState.from_apps(apps).apps.get_model("app", "Ticket")()
    ticket.save()
    return ticket


def deleted() -> Ticket:
    """
    Give an object whose row is gone.
    """
    ticket = Ticket.objects.create()
    ticket.delete()
    return ticket


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (historical, "an object of another app.Ticket than the installed one"),
        (deleted, "an unsaved app.Ticket"),
        (lambda: (Ticket.objects.create(), Ticket.objects.only("state").get())[1], "app.Ticket loaded in part"),
        (lambda: Order.objects.create().items, "RelatedManager"),
        (lambda: Order.objects.values_list("pk"), "QuerySet"),
        (lambda: Order.objects.raw("SELECT 1"), "RawQuerySet"),
    ],
)
def test_what_stands_for_no_one_row_is_refused(make: Any, found: str) -> None:
    """
    Objects without a row, or with a part of one, and sets of rows that would be other rows later are refused.
    """
    with pytest.raises(KwargsSerializationError, match="keyword lines\\[0\\] can't be stored") as caught:
        encode({"lines": [make()]}, "fulfil")

    assert f"found {found}" in str(caught.value)
    assert caught.value.path == "lines[0]"
