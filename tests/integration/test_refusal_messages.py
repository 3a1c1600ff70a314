"""
Prove that reasons can be asked for, translated and carried elsewhere.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import translation
from django.utils.translation import gettext_lazy

from django_logic import Action, Transition, refusal_message
from django_logic.exceptions import (
    TransitionNotAllowed,
    TransitionTemporarilyUnavailable,
)
from tests.app.models import Ticket
from tests.flows import Bind, declare, noting, records, write_catalogue

pytestmark = pytest.mark.django_db


Call = Callable[..., Any]


def refused(call: Call, *arguments: Any, **keywords: Any) -> TransitionNotAllowed:
    """
    Return the refusal of a call.
    """
    with pytest.raises(TransitionNotAllowed) as caught:
        call(*arguments, **keywords)

    return caught.value


def says_no(instance: Any, *user: Any, **keywords: Any) -> bool:
    """
    Refuse everybody.
    """
    return False


def test_busy_refusal_carries_the_same(bind: Bind, ticket: Ticket) -> None:
    """
    A caller who finds the object held learns as much, in the project's own words if it has some.
    """
    seen: list[TransitionNotAllowed] = []

    def again(instance: Any, **keywords: Any) -> None:
        seen.append(refused(instance.flow.stop))

    bind(
        declare(
            Transition("go", ["new"], "done", side_effects=[again]),
            Transition("stop", ["new"], "stopped", refusal_messages={"locked": gettext_lazy("One moment.")}),
        )
    )

    ticket.flow.go()

    (error,) = seen
    assert type(error) is TransitionTemporarilyUnavailable
    assert (error.reason, error.http_status, error.user_message) == ("locked", 503, "One moment.")
    assert (error.action, error.target, error.current_state) == ("stop", "stopped", "new")


def test_why_not_lists_what_a_call_would_be_refused_for(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    The same codes, words and parameters as the refusal, and nothing where the call may run.
    """
    bind(
        declare(
            Transition(
                "go", ["new"], "done", conditions=[noting([], "paid", False)], refusal_messages={"paid": "Not paid."}
            ),
            Transition("stop", ["new"], "stopped"),
            Transition("back", ["done"], "new"),
            Transition("guarded", ["new"], "done", permissions=[says_no]),
            duplicates="refuse",
        )
    )

    asked: dict[str, list[str]] = {
        name: [reason.code for reason in ticket.flow.why_not(name, user=clerk)]
        for name in ("go", "stop", "back", "guarded", "nonsense")
    }

    assert asked == {
        "go": ["condition"],
        "stop": [],
        "back": ["duplicate"],
        "guarded": ["permission"],
        "nonsense": ["unknown_action"],
    }
    assert ticket.flow.why_not("guarded") == []
    assert tuple(ticket.flow.why_not("go")) == refused(ticket.flow.go).reasons
    assert [reason.message for reason in ticket.flow.why_not("go")] == ["Not paid."]
    assert [reason.code for reason in ticket.flow.why_not("stop", expected_version=4)] == ["stale_version"]
    assert [reason.code for reason in ticket.flow.why_not(target="nowhere")] == ["source_state"]
    assert records() == (0, 0)


def test_why_not_needs_to_be_told_what_is_asked(bind: Bind, ticket: Ticket) -> None:
    """
    Neither an action nor a target is a slip of the pen.
    """
    bind(declare(Transition("go", ["new"], "done")))

    with pytest.raises(TypeError, match="action"):
        ticket.flow.why_not()
    with pytest.raises(TypeError, match="action"):
        ticket.flow.why_not("go", target="done")


def test_words_are_translated_at_the_call(bind: Bind, ticket: Ticket, settings: Any, tmp_path: Path) -> None:
    """
    Built-in and lazy words are in the language active at the call, and stay what the caller was told.
    """
    german = {"A condition for this is not met.": "Eine Bedingung fehlt.", "Not paid.": "Nicht bezahlt."}
    write_catalogue(tmp_path, "de", german)
    settings.LOCALE_PATHS = [str(tmp_path)]
    paid = refusal_message(gettext_lazy("Not paid."))(noting([], "paid", False))
    bind(
        declare(
            Transition("go", ["new"], "done", conditions=[says_no]),
            Transition("ship", ["new"], "sent", conditions=[paid]),
        )
    )

    with translation.override("de"):
        told = [refused(ticket.flow.go), refused(ticket.flow.ship)]
    english = [refused(ticket.flow.go), refused(ticket.flow.ship)]

    assert [error.user_message for error in told] == ["Eine Bedingung fehlt.", "Nicht bezahlt."]
    assert [error.user_message for error in english] == ["A condition for this is not met.", "Not paid."]


def test_refusal_of_a_call_can_be_pickled(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    What a worker raises, its queue can carry: the instance is left behind, lazy words became text.
    """
    lazy = gettext_lazy("Not paid.")
    bind(
        declare(
            Transition("go", ["new"], "done", conditions=[says_no], refusal_messages={"condition": lazy}),
            Transition("guarded", ["new"], "done", permissions=[says_no]),
            Action("look", ["done"]),
        )
    )
    errors = [
        refused(ticket.flow.go),
        refused(ticket.flow.guarded, user=clerk),
        refused(ticket.flow.look),
        refused(lambda: ticket.flow.nonsense),
        refused(ticket.flow.transition_to, "nowhere"),
        refused(ticket.flow.look, expected_version=7),
    ]

    again = [pickle.loads(pickle.dumps(error)) for error in errors]  # noqa: S301 (our own bytes)

    assert [(type(error), str(error), error.reasons) for error in again] == [
        (type(error), str(error), error.reasons) for error in errors
    ]


@pytest.mark.django_db(transaction=True)
def test_held_state_lock_is_a_refusal_with_its_key_in_the_log(
    bind: Bind, ticket: Ticket, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    With ``lock="cache"`` a second caller is told to come back: a warning at most, with the lock's key beside it.
    """
    settings.DEBUG = True
    seen: list[TransitionNotAllowed] = []
    copy = Ticket.objects.get()

    def meanwhile(instance: Ticket, **keywords: Any) -> None:
        # Another context stands for another process: nothing but the lock itself can know of this call.
        seen.append(Context().run(refused, copy.flow.go))

    bind(declare(Transition("go", ["new"], "done", lock="cache", side_effects=[meanwhile])))

    with caplog.at_level(logging.INFO, "django-logic.transition"):
        assert ticket.flow.go() is True

    (error,) = seen
    assert (type(error), error.reason) == (TransitionTemporarilyUnavailable, "locked")
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("WARNING", str(error)) in told
    assert any(level == "INFO" and "held elsewhere (django_logic:" in line for level, line in told)
    assert max(record.levelno for record in caplog.records) == logging.WARNING
    assert copy.flow.go() is False
    cache.clear()
