"""
Prove the state lock in the cache: who holds it, when it ends, and what a lost cache does to a call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured

from django_logic import ProcessManager, Transition
from django_logic.exceptions import TransitionNotAllowed, TransitionTemporarilyUnavailable
from tests.app.caches import LostCache
from tests.app.hooked import fresh, hooked, lock_key, moves, nothing, stored
from tests.app.models import Base, Child, Guarded, Order, OrderProxy, Ticket
from tests.races.together import Worker, held_by_another

pytestmark = pytest.mark.django_db(transaction=True)

SHARED_CACHES = ["redis", "files"]


@pytest.fixture(params=SHARED_CACHES)
def shared_cache(request: pytest.FixtureRequest, settings: Any, tmp_path: Any) -> None:
    """
    Make a cache that all processes share the default one.
    """
    if request.param == "redis":
        request.getfixturevalue("redis_cache")
        return
    backend = "django.core.cache.backends.filebased.FileBasedCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": str(tmp_path)}}


@pytest.mark.usefixtures("shared_cache")
def test_a_held_cache_lock_refuses_and_is_logged_by_its_key(caplog: pytest.LogCaptureFixture) -> None:
    """
    The state lock held elsewhere refuses the call as locked, and one INFO line names the key.
    """
    ticket = Ticket.objects.create()
    caplog.set_level(logging.INFO, "django-logic.transition")

    with held_by_another(ticket, "cache"), hooked(Transition("go", ["new"], "done", lock="cache")):
        key = lock_key(ticket)
        with pytest.raises(TransitionTemporarilyUnavailable) as refused:
            ticket.probe.go()
        free_key = lock_key(Ticket.objects.create())

    assert refused.value.reason == "locked"
    assert [record.levelname for record in caplog.records if key in record.getMessage()] == ["INFO"]
    assert key != free_key
    assert stored(ticket) == "new"


@pytest.mark.usefixtures("shared_cache")
def test_an_expired_holder_leaves_the_next_holders_lock_alone() -> None:
    """
    A holder whose time ran out gives back only what is still its own: the next holder's token stays.
    """
    ticket = Ticket.objects.create()

    def expire_and_be_followed(instance: Any, **kwargs: Any) -> None:
        cache.set(lock_key(instance), "the next holder")

    with hooked(Transition("go", ["new"], "done", lock="cache", side_effects=[expire_and_be_followed])):
        ticket.probe.go()
        token = cache.get(lock_key(ticket))

    assert token == "the next holder"


@pytest.mark.usefixtures("shared_cache")
def test_an_expired_holder_does_not_overwrite_the_next_holders_move() -> None:
    """
    A holder whose lock ran out while the next one moved the object is refused as moved; the next move stays.
    """
    ticket = Ticket.objects.create()

    def be_overtaken(instance: Any, **kwargs: Any) -> None:
        cache.delete(lock_key(instance))
        assert Worker(lambda: fresh(ticket).probe.leave()).result() is True

    ways = [Transition("go", ["new"], "done", lock="cache", side_effects=[be_overtaken])]
    ways.append(Transition("leave", ["new"], "left", lock="cache"))
    with hooked(*ways):
        with pytest.raises(TransitionNotAllowed) as refused:
            ticket.probe.go()
        chain = moves(ticket)

    assert refused.value.reason == "moved"
    assert chain == [("new", "left")]
    assert ticket.state == stored(ticket) == "left"


def test_the_cache_lock_ends_by_itself_after_lock_timeout(redis_cache: None, settings: Any) -> None:
    """
    The key lives for LOCK_TIMEOUT seconds, so a killed process blocks nobody for longer.
    """
    settings.DJANGO_LOGIC = {"LOCK_TIMEOUT": 90}
    ticket, left = Ticket.objects.create(), []

    def look(instance: Any, **kwargs: Any) -> None:
        client = cache._cache.get_client()
        left.append(client.ttl(cache.make_key(lock_key(instance))))

    with hooked(Transition("go", ["new"], "done", lock="cache", side_effects=[look])):
        ticket.probe.go()

    assert 80 <= left[0] <= 90


def test_a_lock_timeout_below_a_second_still_locks(redis_cache: None, settings: Any) -> None:
    """
    A LOCK_TIMEOUT the settings accept holds the lock, even one that the cache would round down to nothing.
    """
    settings.DJANGO_LOGIC = {"LOCK_TIMEOUT": 0.5}
    ticket, seen = Ticket.objects.create(), []

    def look(instance: Any, **kwargs: Any) -> None:
        seen.append(cache.get(lock_key(instance)) is not None)

    with hooked(Transition("go", ["new"], "done", lock="cache", side_effects=[look])):
        ticket.probe.go()

    assert seen == [True]


@pytest.mark.parametrize(("one", "other"), [(Order, OrderProxy), (Base, Child)])
def test_a_proxy_and_a_child_take_the_lock_of_the_table(redis_cache: None, one: Any, other: Any) -> None:
    """
    The lock belongs to the row that holds the column: proxy, parent and child share it.
    """
    field = "status" if one is Order else "state"
    made = other.objects.create()
    start = getattr(made, field)

    with hooked(Transition("go", [start], "cancelled", lock="cache"), model=one, field=field):
        cache.set(lock_key(other.objects.get(pk=made.pk)), "held")
        with pytest.raises(TransitionTemporarilyUnavailable):
            one.objects.get(pk=made.pk).probe.go()

    assert stored(made, field) == start


@pytest.mark.parametrize("keyword", ["state", "exception", "context", "request"])
@pytest.mark.usefixtures("shared_cache")
def test_a_callers_keyword_of_the_engine_is_refused_before_anything_is_held(keyword: str) -> None:
    """
    A keyword that would shadow the engine's own is a TypeError, and the object stays free.
    """
    ticket = Ticket.objects.create()

    with hooked(Transition("go", ["new"], "done", lock="cache", side_effects=[nothing])):
        with pytest.raises(TypeError, match=keyword):
            ticket.probe.go(**{keyword: 1})
        is_held = cache.get(lock_key(ticket)) is not None
        moved = ticket.probe.go()

    assert (is_held, moved) == (False, True)


@pytest.mark.parametrize("backend", ["locmem.LocMemCache", "dummy.DummyCache"])
def test_a_cache_of_one_process_is_refused_for_locks(settings: Any, backend: str) -> None:
    """
    lock="cache" on a cache that each process has for itself is refused as the process is bound.
    """
    settings.CACHES = {"default": {"BACKEND": f"django.core.cache.backends.{backend}"}}

    way = Transition("go", ["new"], "done", lock="cache")
    with pytest.raises(ImproperlyConfigured, match="all processes share"), hooked(way):
        pytest.fail("it was bound")

    assert not any(binding.process_class.process_name == "probe" for binding in ProcessManager.bindings)


@pytest.fixture
def lost_cache(settings: Any, tmp_path: Any) -> Iterator[type[LostCache]]:
    """
    Make a cache the default one that can be told to fail.
    """
    settings.CACHES = {"default": {"BACKEND": "tests.app.caches.LostCache", "LOCATION": str(tmp_path)}}
    LostCache.is_lost = False
    yield LostCache
    LostCache.is_lost = False


def test_a_cache_that_is_lost_before_the_lock_moves_nothing(lost_cache: type[LostCache]) -> None:
    """
    Without a cache there is no lock: its error reaches the caller and nothing runs.
    """
    guarded, ran = Guarded.objects.create(), []
    lost_cache.is_lost = True
    way = Transition("go", ["new"], "done", lock="cache", side_effects=[lambda instance, **kwargs: ran.append(1)])

    with hooked(way, model=Guarded), pytest.raises(ConnectionError):
        guarded.probe.go()

    assert ran == []
    assert guarded.state == stored(guarded) == "new"


@pytest.mark.parametrize("ending", [None, ZeroDivisionError("work")])
def test_a_cache_that_is_lost_before_the_release_changes_no_outcome(
    lost_cache: type[LostCache], ending: Exception | None
) -> None:
    """
    A lock that can't be given back ends by its time-out: the move stands, or the work's own error is told.
    """
    guarded, failures = Guarded.objects.create(), []

    def lose_cache(instance: Any, **kwargs: Any) -> None:
        lost_cache.is_lost = True
        if ending is not None:
            raise ending

    way = Transition(
        "go",
        ["new"],
        "done",
        lock="cache",
        side_effects=[lose_cache],
        failure_callbacks=[lambda instance, exception, **kwargs: failures.append(exception)],
    )
    with hooked(way, model=Guarded), nullcontext() if ending is None else pytest.raises(ZeroDivisionError):
        guarded.probe.go()

    assert failures == ([] if ending is None else [ending])
    assert guarded.state == stored(guarded) == ("done" if ending is None else "new")
