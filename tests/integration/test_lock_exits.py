"""
Prove that every way out of a call gives back what the call held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.db.models import Model

from django_logic import Action, Transition
from django_logic.exceptions import TransitionNotAllowed, TransitionTemporarilyUnavailable
from tests.app.hooked import all_records, fresh, hooked, moves, stored
from tests.app.models import Guarded, Item, Order, Product
from tests.races.together import Worker

pytestmark = pytest.mark.django_db(transaction=True)

LOCKS = ["row", "nowait", "cache"]


def raising(error: BaseException) -> Callable[..., Any]:
    """
    Make a hook that raises.
    """

    def hook(instance: Any, *args: Any, **kwargs: Any) -> None:
        raise error

    return hook


def refusing(instance: Any, **kwargs: Any) -> bool:
    """
    Say no.
    """
    return False


def break_at_commit(instance: Any, **kwargs: Any) -> None:
    """
    Write what the database refuses as the transaction commits.
    """
    Item.objects.create(order_id=10**6, product_id=10**6)


def delete_row(instance: Any, **kwargs: Any) -> None:
    """
    Delete the object that is being moved.
    """
    Guarded.objects.filter(pk=instance.pk).delete()


#: How a call may end: its declaration, and what reaches the caller.
EXITS: dict[str, tuple[dict[str, Any], Any]] = {
    "success": ({"side_effects": [lambda instance, **kwargs: None]}, None),
    "refusal": ({"conditions": [refusing]}, TransitionNotAllowed),
    "raising condition": ({"conditions": [raising(ZeroDivisionError())]}, ZeroDivisionError),
    "raising side effect": ({"side_effects": [raising(ZeroDivisionError())]}, ZeroDivisionError),
    "failed state": ({"side_effects": [raising(ZeroDivisionError())], "failed_state": "failed"}, ZeroDivisionError),
    "refused failed state": (
        {"side_effects": [raising(ZeroDivisionError())], "failed_state": "forbidden too"},
        ZeroDivisionError,
    ),
    "refused target": ({"target": "forbidden", "side_effects": [lambda instance, **kwargs: None]}, DatabaseError),
    "refused target and failed state": ({"target": "forbidden", "failed_state": "forbidden too"}, DatabaseError),
    "keyboard interrupt": ({"side_effects": [raising(KeyboardInterrupt())]}, KeyboardInterrupt),
    "interrupt with failed state": (
        {"side_effects": [raising(KeyboardInterrupt())], "failed_state": "failed"},
        KeyboardInterrupt,
    ),
    "system exit": ({"side_effects": [raising(SystemExit(3))]}, SystemExit),
    "interrupted condition": ({"conditions": [raising(KeyboardInterrupt())]}, KeyboardInterrupt),
    "interrupted preparation": ({"prepare": [raising(KeyboardInterrupt())]}, KeyboardInterrupt),
    "failing preparation": ({"prepare": [raising(ZeroDivisionError())]}, ZeroDivisionError),
    "interrupted failure callback": (
        {"side_effects": [raising(ZeroDivisionError())], "failure_callbacks": [raising(KeyboardInterrupt())]},
        KeyboardInterrupt,
    ),
    "interrupted callback": (
        {"side_effects": [lambda instance, **kwargs: None], "callbacks": [raising(KeyboardInterrupt())]},
        KeyboardInterrupt,
    ),
}


@pytest.fixture(params=LOCKS)
def lock(request: pytest.FixtureRequest) -> str:
    """
    Give each kind of lock, with a cache that all processes share.
    """
    if request.param == "cache":
        request.getfixturevalue("redis_cache")
    return str(request.param)


def is_free(instance: Model, kind: str) -> bool:
    """
    Ask from another session whether the object can be taken at once.
    """
    check = Action("check", "*", side_effects=[lambda instance, **kwargs: None], lock=kind)
    names = [Transition(f"any_{n}", [state], "any") for n, state in enumerate(["new", "done", "failed"])]
    with hooked(check, *names, model=type(instance)):
        return bool(Worker(lambda: fresh(instance).probe.check()).result())


@pytest.mark.parametrize("way_out", EXITS)
def test_the_object_is_free_after_every_exit(way_out: str, lock: str) -> None:
    """
    Success, refusal, failure, interruption and a refused write: afterwards anybody can take the object.
    """
    slots, expected = EXITS[way_out]
    guarded = Guarded.objects.create()
    declared = Transition("go", ["new"], **{"target": "done", "lock": lock, **slots})

    with hooked(declared, model=Guarded):
        if expected is None:
            guarded.probe.go()
        else:
            with pytest.raises(expected):
                guarded.probe.go()

    assert connection.in_atomic_block is False
    assert is_free(guarded, "nowait")
    if lock == "cache":
        assert is_free(guarded, "cache")
    assert guarded.state == stored(guarded)


def test_the_object_is_free_after_a_failed_commit(lock: str) -> None:
    """
    A constraint that speaks at the commit undoes the whole call and frees the object.
    """
    if connection.vendor == "mysql":
        pytest.skip("InnoDB checks foreign keys at once")
    guarded = Guarded.objects.create()

    with hooked(Transition("go", ["new"], "done", lock=lock, side_effects=[break_at_commit]), model=Guarded):
        with pytest.raises(DatabaseError):
            guarded.probe.go()
        chain = moves(guarded)

    assert chain == []
    assert guarded.state == stored(guarded) == "new"
    assert is_free(guarded, lock)


def test_a_side_effect_that_deletes_the_row_ends_in_an_error(lock: str) -> None:
    """
    A row that goes while the work runs refuses the call; with a row lock it is back, and free.
    """
    guarded = Guarded.objects.create()

    way = Transition("go", ["new"], "done", lock=lock, side_effects=[delete_row])
    with hooked(way, model=Guarded), pytest.raises((TransitionNotAllowed, Guarded.DoesNotExist)):
        guarded.probe.go()

    assert all_records() == 0
    assert Guarded.objects.filter(pk=guarded.pk).exists() is (lock != "cache")
    assert lock == "cache" or is_free(guarded, lock)


@pytest.mark.parametrize("ending", [None, ZeroDivisionError("work"), KeyboardInterrupt()])
def test_an_object_driven_from_a_side_effect_is_free_too(lock: str, ending: BaseException | None) -> None:
    """
    When a side effect moves another object and then fails, both are free afterwards.
    """
    one, two = Guarded.objects.create(), Guarded.objects.create()

    def drive(instance: Any, **kwargs: Any) -> None:
        if instance.pk == one.pk:
            fresh(two).probe.go()
            if ending is not None:
                raise ending

    with hooked(Transition("go", ["new"], "done", lock=lock, side_effects=[drive]), model=Guarded):
        if ending is None:
            one.probe.go()
        else:
            with pytest.raises(type(ending)):
                one.probe.go()

    assert is_free(one, "nowait")
    assert is_free(two, "nowait")
    if lock == "cache":
        assert is_free(one, "cache")
        assert is_free(two, "cache")


def test_the_same_object_can_be_moved_again_after_an_interruption(lock: str) -> None:
    """
    What the interrupted call held in this very thread is given back as well.
    """
    guarded = Guarded.objects.create()
    endings: list[BaseException] = [KeyboardInterrupt(), SystemExit()]

    def interrupt(instance: Any, **kwargs: Any) -> None:
        if endings:
            raise endings.pop()

    with hooked(Transition("go", ["new"], "done", lock=lock, side_effects=[interrupt]), model=Guarded):
        for ending in (SystemExit, KeyboardInterrupt):
            with pytest.raises(ending):
                guarded.probe.go()
        moved = guarded.probe.go()

    assert moved is True


def test_a_killed_connection_frees_the_object() -> None:
    """
    A session that the server ends during a side effect leaves the source state and no lock.
    """
    if connection.vendor != "postgresql":
        pytest.skip("ends the session by pg_terminate_backend")
    guarded, failures = Guarded.objects.create(), []

    def lose_connection(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="lost")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    way = Transition(
        "go",
        ["new"],
        "done",
        side_effects=[lose_connection],
        failed_state="failed",
        failure_callbacks=[lambda instance, exception, **kwargs: failures.append((instance.state, exception))],
    )
    with hooked(way, model=Guarded), pytest.raises(DatabaseError) as lost:
        guarded.probe.go()

    assert failures == [("new", lost.value)]
    assert guarded.state == stored(guarded) == "new"
    assert not Product.objects.exists()
    assert is_free(guarded, "nowait")


@pytest.mark.parametrize("way_out", ["busy row", "busy cache"])
def test_a_busy_call_gives_nothing_back_that_is_not_its_own(way_out: str, redis_cache: None) -> None:
    """
    A call that never got the lock does not free it for others.
    """
    order = Order.objects.create()
    lock = "cache" if way_out == "busy cache" else "nowait"
    if lock == "nowait" and connection.vendor == "sqlite":
        pytest.skip("SQLite has no lock on a row")

    refusals = []

    def call_from_elsewhere(instance: Any, **kwargs: Any) -> None:
        for _ in range(2):
            outcome = Worker(lambda: fresh(order).probe.go()).join()
            refusals.append(type(outcome.error))

    way = Transition("go", ["draft"], "cancelled", lock=lock, side_effects=[call_from_elsewhere])
    with hooked(way, model=Order, field="status"):
        order.probe.go()

    assert refusals == [TransitionTemporarilyUnavailable] * 2
