"""
Prove that whatever is passed in gives a clear error or a clean record, and nothing half-written.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist
from django.db import connection
from django.test.utils import isolate_apps
from django.utils.functional import lazystr
from django.utils.translation import gettext_lazy

from django_logic import Transition
from tests.app.models import SlugDocument, Ticket, UuidDocument
from tests.flows import Bind, declare, moves, noting, records, stored

pytestmark = pytest.mark.django_db


commits = pytest.mark.django_db(transaction=True)


#: A keyword that hands the call to the locked path, and none.
PATHS = pytest.mark.parametrize("keywords", [{}, {"expected_version": 0}], ids=["fast", "locked"])


REASONS = {
    "with NUL": ("a\x00b", "a\ufffdb"),
    "half a surrogate": ("a\ud83db", "a?b"),
    "a whole emoji": ("🚚🇩🇰 sent", "🚚🇩🇰 sent"),
    "right to left": ("שלום", "שלום"),
    "quotes and percent": ("'; DROP TABLE app_ticket; -- %s %(pk)s {0}", "'; DROP TABLE app_ticket; -- %s %(pk)s {0}"),
    "lazy": (gettext_lazy("checkout completed"), "checkout completed"),
    "lazy text": (lazystr("checkout"), "checkout"),
    "a number": (42, "42"),
    "nothing": (None, ""),
    "lines": ("first\nsecond\r\n\tthird", "first\nsecond\r\n\tthird"),
    "a megabyte": ("é" * 500_000, "é" * 500_000),
}


ACTORS = {
    "with NUL": ("ware\x00house", "ware\ufffdhouse"),
    "emoji": ("🚚 warehouse", "🚚 warehouse"),
    "very long": ("x" * 5_000, "x" * 255),
    "very long emoji": ("🚚" * 300, "🚚" * 255),
    "half a surrogate": ("\ud800", "?"),
    "lazy": (gettext_lazy("warehouse"), "warehouse"),
    "nothing": ("", ""),
}


STATES = ["ünïcödé 🚚", "it's", '"quoted"', "100 %", "%s", "{curly}", "back\\slash", "a b", "-"]


@commits
@PATHS
def test_reason_of_any_kind_is_recorded_whole(bind: Bind, ticket: Ticket, keywords: Any) -> None:
    """
    A reason is text, however odd or long; what no database can store is replaced.
    """
    bind(declare(Transition("go", ["new"], "done")))
    tickets = {kind: Ticket.objects.create() for kind in REASONS}

    for kind, (given, _kept) in REASONS.items():
        assert tickets[kind].flow.go(reason=given, **keywords) is True

    recorded = {kind: tickets[kind].flow.history.get().reason for kind in REASONS}
    assert recorded == {kind: kept for kind, (_given, kept) in REASONS.items()}


@commits
@PATHS
def test_text_actor_of_any_kind_is_recorded(bind: Bind, ticket: Ticket, keywords: Any) -> None:
    """
    An actor's name is cut to its column and made storable; it is nobody's key.
    """
    bind(declare(Transition("go", ["new"], "done")))
    tickets = {kind: Ticket.objects.create() for kind in ACTORS}

    for kind, (given, _kept) in ACTORS.items():
        assert tickets[kind].flow.go(actor=given, **keywords) is True

    changes = {kind: tickets[kind].flow.history.get() for kind in ACTORS}
    assert {kind: change.actor_label for kind, change in changes.items()} == {
        kind: kept for kind, (_given, kept) in ACTORS.items()
    }
    assert all((change.actor_id, change.actor) == ("", None) for change in changes.values())


def test_user_with_a_very_long_name_is_recorded(bind: Bind, ticket: Ticket) -> None:
    """
    A person's name may be longer than the column of the label.
    """

    with isolate_apps("tests.app", "django.contrib.auth", "django.contrib.contenttypes"):

        class Person(get_user_model()):
            class Meta:
                proxy = True
                app_label = "app"

            def get_username(self) -> str:
                return "n" * 1_000

    bind(declare(Transition("go", ["new"], "done")))

    ticket.flow.go(user=Person(pk=3))

    change = ticket.flow.history.get()
    assert (change.actor_id, change.actor_label) == ("3", "n" * 255)


def test_user_that_was_never_saved_is_recorded_by_name(bind: Bind, ticket: Ticket) -> None:
    """
    Without a key only the name is kept.
    """
    bind(declare(Transition("go", ["new"], "done")))

    ticket.flow.go(user=get_user_model()(username="ghost"))

    change = ticket.flow.history.get()
    assert (change.actor_id, change.actor_label, change.actor) == ("", "ghost", None)


def test_record_outlives_its_actor(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    A user may be deleted: his moves stay, with his name; loading him gives None, one by one or by the page.
    """
    bind(declare(Transition("go", ["new"], "done"), Transition("back", ["done"], "new")))
    boss = get_user_model().objects.create_user("boss")
    ticket.flow.go(user=clerk)
    ticket.flow.back(user=boss)

    clerk.delete()

    gone, there = ticket.flow.history
    assert (gone.actor, gone.actor_label) == (None, "clerk")
    assert (there.actor, there.actor_label) == (boss, "boss")
    assert [change.actor for change in ticket.flow.history.with_actors()] == [None, boss]


@commits
@PATHS
@pytest.mark.parametrize("work", [False, True])
def test_instance_without_a_row_is_refused_in_clear_words(bind: Bind, work: bool, keywords: Any) -> None:
    """
    There is nothing to move: the model's DoesNotExist says which call, which object, and what to do.
    """
    log: list[Any] = []
    bind(declare(Transition("go", ["new"], "done", side_effects=[noting(log)] if work else [])))
    here, elsewhere = Ticket.objects.create(), Ticket.objects.create()
    here.delete()
    Ticket.objects.all().delete()

    for lost in (Ticket(), Ticket(pk=10_000), here, elsewhere):
        with pytest.raises(Ticket.DoesNotExist) as caught:
            lost.flow.go(**keywords)

        assert isinstance(caught.value, ObjectDoesNotExist)
        assert "FlowProcess.go: Ticket" in str(caught.value)
        assert "no row" in str(caught.value) or "row is gone" in str(caught.value)
        assert (lost.state, log, records()) == ("new", [], (0, 0))


def test_questions_about_an_instance_without_a_row_are_answered(bind: Bind) -> None:
    """
    Lists, reasons, history and version work on what is not saved yet; nothing is recorded of it.
    """
    bind(declare(Transition("go", ["new"], "done")))
    unsaved = Ticket()

    assert unsaved.flow.get_available_actions() == ["go"]
    assert unsaved.flow.why_not("go") == []
    assert (unsaved.flow.version, list(unsaved.flow.history), unsaved.flow.timeline()) == (0, [], [])
    assert UuidDocument().process.version == 0


@commits
def test_unsaved_instances_share_no_history(bind: Bind) -> None:
    """
    A text key "None" is a key like others, not the absence of one.
    """
    SlugDocument.objects.create(slug="None").process.publish()

    assert list(SlugDocument(slug="None").process.history.values_list("to_state", flat=True)) == ["published"]
    assert list(Ticket().process.history) == []


@commits
@PATHS
def test_state_of_odd_letters_is_a_state(bind: Bind, ticket: Ticket, keywords: Any) -> None:
    """
    Quotes, percent signs, spaces and emoji in states reach column and history unharmed.
    """
    bind(declare(*(Transition(f"to {state}", ["new"], state) for state in STATES), Transition("back", STATES, "new")))

    for state in STATES:
        thing = Ticket.objects.create()
        assert getattr(thing.flow, f"to {state}")(**keywords) is True
        assert stored(thing) == state
        assert thing.flow.transition_to("new") is True
        assert moves(thing) == [("new", state), (state, "new")]


@commits
@PATHS
def test_write_the_database_refuses_leaves_nothing_behind(bind: Bind, ticket: Ticket, keywords: Any) -> None:
    """
    A state the column can't hold is the database's error; column, history and memory stay together.
    """
    if connection.vendor == "sqlite":
        pytest.skip("SQLite stores text of any length")
    bind(declare(Transition("go", ["new"], "x" * 200)))

    with pytest.raises(Exception, match=r"(?i)too long"):
        ticket.flow.go(**keywords)

    assert (stored(ticket), ticket.state, records()) == ("new", "new", (0, 0))
    assert ticket.process.publish() is True
