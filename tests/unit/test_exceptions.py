"""
Prove what a refusal carries, in this process and in another one.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import translation
from django.utils.functional import Promise

from django_logic import exceptions
from django_logic.exceptions import (
    AlreadyInProgress,
    DjangoLogicException,
    InvalidTransition,
    Refusal,
    RefusalReason,
    TransitionForbidden,
    TransitionNotAllowed,
    TransitionTemporarilyUnavailable,
    UnknownAction,
    refusal_error,
)
from tests.flows import write_catalogue

KINDS = [
    TransitionNotAllowed,
    InvalidTransition,
    UnknownAction,
    TransitionForbidden,
    TransitionTemporarilyUnavailable,
    AlreadyInProgress,
]

#: code -> class, HTTP status, as the contract and the web page of it say.
TABLE: dict[str, tuple[type[TransitionNotAllowed], int]] = {
    "permission": (TransitionForbidden, 403),
    "condition": (TransitionNotAllowed, 422),
    "source_state": (InvalidTransition, 409),
    "unknown_action": (UnknownAction, 404),
    "locked": (TransitionTemporarilyUnavailable, 503),
    "background_in_flight": (TransitionTemporarilyUnavailable, 503),
    "background_stranded": (TransitionNotAllowed, 409),
    "ambiguous": (TransitionNotAllowed, 409),
    "stale_version": (TransitionNotAllowed, 412),
    "moved": (TransitionNotAllowed, 409),
    "duplicate": (TransitionNotAllowed, 409),
}

DEFAULT_STATUS = {
    TransitionNotAllowed: 409,
    InvalidTransition: 409,
    UnknownAction: 404,
    TransitionForbidden: 403,
    TransitionTemporarilyUnavailable: 503,
    AlreadyInProgress: 409,
}


def made(
    kind: type[TransitionNotAllowed], *, list_actions: Callable[[], list[str]] | None = None
) -> TransitionNotAllowed:
    """
    Make a refusal of this class with every fact it can carry.
    """
    reasons = (
        Refusal("condition", "Not enough in stock.", {"hook": "has_stock", "action": "approve"}),
        Refusal("condition", "Not paid.", {"hook": "is_paid", "action": "approve"}),
    )
    return kind(
        "OrderProcess.approve refused.",
        action="approve",
        target="approved",
        current_state="draft",
        reasons=reasons,
        list_actions=list_actions,
    )


def test_codes_are_a_closed_set_of_texts() -> None:
    """
    The codes of the contract, no more and no fewer; each equals its text.
    """
    assert {str(code) for code in RefusalReason} == set(TABLE)
    assert RefusalReason.CONDITION == "condition"


@pytest.mark.parametrize("code", list(TABLE))
def test_code_decides_class_and_status(code: str) -> None:
    """
    Each code speaks through one class and one HTTP status.
    """
    kind, status = TABLE[code]

    error = refusal_error("Refused.", (Refusal(code, "No."),))

    assert (type(error), error.http_status, error.reason) == (kind, status, code)
    assert isinstance(error.reason, RefusalReason)


def test_first_reason_speaks_for_all() -> None:
    """
    With several reasons the first one gives class, status, code and words; all are kept.
    """
    reasons = (Refusal("condition", "Not paid."), Refusal("condition", "Not in stock."))

    error = refusal_error("Refused.", reasons)

    assert (error.reason, error.user_message, error.reasons) == ("condition", "Not paid.", reasons)


def test_refusals_form_the_family_of_the_contract() -> None:
    """
    One except clause catches every refusal, and the finer classes can be caught before it.
    """
    assert all(issubclass(kind, TransitionNotAllowed) for kind in KINDS)
    assert issubclass(TransitionNotAllowed, DjangoLogicException)
    assert issubclass(AlreadyInProgress, TransitionTemporarilyUnavailable)
    assert issubclass(UnknownAction, AttributeError)
    assert issubclass(TransitionForbidden, PermissionDenied)
    assert not issubclass(InvalidTransition, TransitionTemporarilyUnavailable)


@pytest.mark.parametrize("kind", KINDS)
def test_refusal_raised_by_hand_needs_no_facts(kind: type[TransitionNotAllowed]) -> None:
    """
    A project may raise these itself: with a text alone, or with nothing.
    """
    spoken, silent = kind("No."), kind()

    assert (str(spoken), spoken.args) == ("No.", ("No.",))
    assert str(silent).strip()
    assert (silent.action, silent.target, silent.current_state, silent.reasons) == (None, None, None, ())
    assert (silent.reason, silent.available_actions) == (None, None)
    assert silent.http_status == DEFAULT_STATUS[kind]
    assert silent.user_message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_refusal_survives_pickling(kind: type[TransitionNotAllowed], protocol: int) -> None:
    """
    A refusal that crosses a process boundary keeps its class, text and facts; the listing stays behind.
    """
    error = made(kind, list_actions=lambda: ["cancel"])

    again = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 (our own bytes)

    facts = ("args", "action", "target", "current_state", "reasons", "reason", "user_message", "http_status")
    assert type(again) is kind
    assert str(again) == str(error)
    assert {fact: getattr(again, fact) for fact in facts} == {fact: getattr(error, fact) for fact in facts}
    assert again.available_actions is None


@pytest.mark.parametrize("kind", KINDS)
def test_refusal_survives_copying(kind: type[TransitionNotAllowed]) -> None:
    """
    Shallow and deep copies carry the same facts.
    """
    error = made(kind)

    copies = (copy.copy(error), copy.deepcopy(error))

    assert [(type(one), str(one), one.reasons) for one in copies] == [(kind, str(error), error.reasons)] * 2


def test_available_actions_are_computed_when_read() -> None:
    """
    Making a refusal lists nothing; reading it does.
    """
    asked: list[int] = []
    error = made(TransitionNotAllowed, list_actions=lambda: asked.append(1) or ["cancel"])

    before = list(asked)
    listed = error.available_actions

    assert (before, listed, asked) == ([], ["cancel"], [1])


def test_listing_that_fails_never_replaces_the_refusal() -> None:
    """
    A guard of another action that raises while hints are listed gives no hints, not another error.
    """

    def fails() -> list[str]:
        raise ZeroDivisionError

    error = made(TransitionNotAllowed, list_actions=fails)

    assert error.available_actions is None


def test_refusal_value_is_frozen_and_comparable() -> None:
    """
    A reason is a value: equal by content, unchangeable.
    """
    reason = Refusal("condition", "Not paid.", {"hook": "is_paid"})

    with pytest.raises(AttributeError):
        reason.code = "permission"

    assert reason == Refusal("condition", "Not paid.", {"hook": "is_paid"})
    assert Refusal("condition", "Not paid.").params == {}


def test_every_code_has_built_in_words_and_a_status() -> None:
    """
    No code is without words for people, which are translated when they are read, or without a status.
    """
    assert set(exceptions.BUILT_IN_MESSAGES) == set(exceptions.HTTP_STATUS) == set(TABLE)
    assert all(isinstance(words, Promise) for words in exceptions.BUILT_IN_MESSAGES.values())


def test_refusal_raised_by_hand_speaks_the_active_language(settings: Any, tmp_path: Path) -> None:
    """
    Built-in words are translated as they are read, not at import.
    """
    write_catalogue(tmp_path, "de", {"This is not possible in the present state.": "Geht jetzt nicht."})
    settings.LOCALE_PATHS = [str(tmp_path)]
    error = TransitionNotAllowed()

    with translation.override("de"):
        german = error.user_message

    assert (german, error.user_message) == ("Geht jetzt nicht.", "This is not possible in the present state.")
