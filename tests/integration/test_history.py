"""
Promises of the querysets over history and audit: whose records, and who acted.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.db.models import Max

from django_logic.models import AuditEntry, StatusChange
from django_logic.subject import column_of
from tests.app.models import Child, Sale, Ticket, UuidDocument
from tests.past import live, row

pytestmark = pytest.mark.django_db


@pytest.fixture
def users() -> list[Any]:
    """
    Give two users.
    """
    return [get_user_model().objects.create_user(name) for name in ("ann", "ben")]


@pytest.fixture
def sale(users: list[Any]) -> Sale:
    """
    Give a sale moved by two users, a named actor and the system.
    """
    order = Sale.objects.create()
    order.transition_to("placed", actor=users[0])
    order.transition_to("processing", actor=users[1])
    order.transition_to("cancelled", actor="warehouse")
    other = Sale.objects.create()
    other.transition_to("placed")
    other.transition_to("cancelled", actor=users[0])
    return order


def test_history_of_an_object_is_its_own_and_oldest_first(sale: Sale) -> None:
    """
    of() finds the moves of one object in one process, in the order they happened.
    """
    column = column_of(Sale, "status", "process")

    moves = StatusChange.objects.of(column, sale)

    assert [move.to_state for move in moves] == ["placed", "processing", "cancelled"]


def test_history_of_a_child_is_found_under_its_parent() -> None:
    """
    of() takes the key of the row that holds the column.
    """
    child = live(Child.objects.create(), ("published", 0))

    assert StatusChange.objects.of(column_of(Child, "state", "process"), child).count() == 1


def test_actor_is_the_user_or_none(sale: Sale, users: list[Any]) -> None:
    """
    A user is loaded; a named actor, the system and a user who was deleted are None, and the name stays.
    """
    ben_id = users[1].pk
    users[1].delete()

    moves = sale.history

    assert [move.actor for move in moves] == [users[0], None, None]
    assert [move.actor_label for move in moves] == ["ann", "ben", "warehouse"]
    assert moves[1].actor_id == str(ben_id)


def test_actor_is_loaded_once(sale: Sale, django_assert_num_queries: Any) -> None:
    """
    Asking again costs nothing, where there is no user neither.
    """
    moves = list(sale.history)

    with django_assert_num_queries(2):
        for _ in range(2):
            assert [str(move.actor or "") for move in moves] == ["ann", "ben", ""]


def test_with_actors_costs_one_query(sale: Sale, django_assert_num_queries: Any) -> None:
    """
    The rows and all their actors are two queries together, and reading the actors none.
    """
    moves = StatusChange.objects.with_actors().order_by("id")

    with django_assert_num_queries(2):
        names = [str(move.actor or "") for move in moves]
        assert names == [str(move.actor or "") for move in moves]
    assert names == ["ann", "ben", "", "", "ann"]


def test_with_actors_asks_nobody_where_no_user_acted(django_assert_num_queries: Any) -> None:
    """
    Records without users need no look at the users.
    """
    live(Ticket.objects.create(), ("published", 0))

    with django_assert_num_queries(1):
        assert [move.actor for move in StatusChange.objects.with_actors()] == [None]


def test_with_actors_survives_what_querysets_do(sale: Sale, django_assert_num_queries: Any) -> None:
    """
    It stays on through filters and slices, whatever comes first, and single rows carry their actor.
    """
    moves = StatusChange.objects.with_actors().filter(instance_id=str(sale.pk)).order_by("-id")

    with django_assert_num_queries(2):
        assert [str(move.actor or "") for move in moves[:2]] == ["", "ben"]
    with django_assert_num_queries(2):
        assert moves.get(sequence=1).actor.username == "ann"
    with django_assert_num_queries(2):
        assert moves.last().actor.username == "ann"


def test_with_actors_streams_a_chunk_at_a_time(sale: Sale, django_assert_num_queries: Any) -> None:
    """
    iterator() loads the actors of each chunk in one query.
    """
    moves = StatusChange.objects.with_actors().order_by("id")

    with django_assert_num_queries(3):
        names = [str(move.actor or "") for move in moves.iterator(chunk_size=3)]

    assert names == ["ann", "ben", "", "", "ann"]


def test_streaming_without_actors_loads_none(sale: Sale, django_assert_num_queries: Any) -> None:
    """
    A plain iterator() is one query.
    """
    with django_assert_num_queries(1):
        assert len(list(StatusChange.objects.iterator())) == 5


@pytest.mark.django_db(transaction=True)
def test_with_actors_works_in_async_code(sale: Sale) -> None:
    """
    async for and aiterator() carry the actors too, without a query when they are read.
    """

    async def names(rows: Any) -> list[str]:
        return [str(move.actor or "") async for move in rows]

    moves = StatusChange.objects.with_actors().order_by("id")

    assert async_to_sync(names)(moves) == ["ann", "ben", "", "", "ann"]
    assert async_to_sync(names)(moves.aiterator(chunk_size=2)) == ["ann", "ben", "", "", "ann"]
    assert async_to_sync(names)(StatusChange.objects.none().with_actors().aiterator()) == []


def test_with_actors_leaves_values_and_aggregates_alone(sale: Sale, django_assert_num_queries: Any) -> None:
    """
    Where no record is made there is nothing to hang an actor on, and no query for it.
    """
    moves = StatusChange.objects.with_actors()

    with django_assert_num_queries(6):
        assert moves.count() == 5
        assert moves.exists()
        assert moves.aggregate(newest=Max("sequence")) == {"newest": 3}
        assert set(moves.values_list("to_state", flat=True)) == {"placed", "processing", "cancelled"}
        assert len(moves.values("actor_id")) == 5
        assert len(list(moves.values_list("id").iterator())) == 5


def test_with_actors_asks_no_row_for_a_column_it_left_out(sale: Sale, django_assert_num_queries: Any) -> None:
    """
    only() without the actor's key stays one query; the actor is loaded when it is asked for.
    """
    with django_assert_num_queries(1):
        moves = list(StatusChange.objects.with_actors().only("action").order_by("id"))

    assert moves[0].actor.username == "ann"


def test_with_actors_survives_pickling(sale: Sale, django_assert_num_queries: Any) -> None:
    """
    A cached result keeps its actors.
    """
    moves = pickle.loads(pickle.dumps(StatusChange.objects.with_actors().order_by("id")))  # noqa: S301 (our own)

    with django_assert_num_queries(0):
        assert moves[0].actor.username == "ann"


def test_audit_entries_have_actors_too(users: list[Any], settings: Any) -> None:
    """
    The same queryset serves history and audit.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    Sale.objects.create().transition_to("placed", actor=users[1])

    (entry,) = AuditEntry.objects.with_actors()

    assert entry.actor == users[1]


def test_users_of_any_key_type_are_found(settings: Any) -> None:
    """
    A user model keyed by UUID is asked by UUID.
    """
    settings.AUTH_USER_MODEL = "app.UuidDocument"
    user = UuidDocument.objects.create()
    ticket = Ticket.objects.create()
    StatusChange.objects.bulk_create([row(ticket, 1, "new", "published", 0, actor_id=str(user.pk))])

    assert StatusChange.objects.get().actor == user
    assert StatusChange.objects.with_actors()[0].actor == user


@pytest.mark.parametrize("key", ["a1b2", "999999999999999999999999", "-", "3.5"])
def test_key_that_no_user_can_have_any_more_is_nobody(key: str) -> None:
    """
    Records from before the user model's key changed its type are read, without a user.
    """
    ticket = Ticket.objects.create()
    StatusChange.objects.bulk_create([row(ticket, 1, "new", "published", 0, actor_id=key, actor_label="ann")])

    assert StatusChange.objects.get().actor is None
    assert StatusChange.objects.with_actors()[0].actor is None


@pytest.mark.parametrize("model", ["nowhere.User", "auth.Nobody", "nonsense"])
def test_project_without_a_user_model_has_no_actors(settings: Any, model: str) -> None:
    """
    History is read in a project that has not installed its users.
    """
    ticket = Ticket.objects.create()
    StatusChange.objects.bulk_create([row(ticket, 1, "new", "published", 0, actor_id="1", actor_label="ann")])
    settings.AUTH_USER_MODEL = model

    assert StatusChange.objects.get().actor is None
    assert [move.actor for move in StatusChange.objects.with_actors()] == [None]
