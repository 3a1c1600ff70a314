"""
Prove what may stand in the slots of a declaration, and what would never run there.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy

from django_logic import Transition, refusal_message

SLOTS = ("conditions", "permissions", "prepare", "side_effects", "callbacks", "failure_callbacks")


def passes(instance: Any, **keywords: Any) -> bool:
    """
    Let everybody pass.
    """
    return True


def refused(build: Any, *arguments: Any, **keywords: Any) -> str:
    """
    Return the words with which a declaration is refused.
    """
    with pytest.raises(ImproperlyConfigured) as caught:
        build(*arguments, **keywords)

    return str(caught.value)


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("hooks", [passes, "passes", [None], ["passes"], [True], 5, None, [passes, 3]])
def test_slot_that_holds_no_callables_is_refused(slot: str, hooks: Any) -> None:
    """
    A lone callable, text, None and a list with something that can't be called are refused by slot.
    """
    words = refused(Transition, "approve", ["draft"], "approved", **{slot: hooks})

    assert words.startswith(f"django_logic.Transition('approve').{slot} must")


@pytest.mark.parametrize("words", ["Not now.", 5, [("condition", "No.")], {"condition": 5}])
def test_refusal_messages_that_are_no_map_of_texts_are_refused(words: Any) -> None:
    """
    ``refusal_messages`` maps codes or guard names to texts.
    """
    answer = refused(Transition, "approve", ["draft"], "approved", refusal_messages=words)

    assert "refusal_messages" in answer


def test_refusal_message_marks_a_guard_and_leaves_it_callable() -> None:
    """
    The decorator gives a guard its words, lazy ones included, and changes nothing else.
    """
    lazy = gettext_lazy("Not enough in stock.")

    marked = refusal_message(lazy)(passes)

    assert marked is passes
    assert marked(None) is True
    assert str(marked.refusal_message) == "Not enough in stock."
    del passes.refusal_message


@pytest.mark.parametrize("message", [passes, None, 5, b"No."])
def test_refusal_message_without_words_is_refused(message: Any) -> None:
    """
    Written without brackets the decorator would put itself in the guard's place and let everybody pass.
    """
    with pytest.raises((TypeError, ImproperlyConfigured), match="refusal_message"):
        refusal_message(message)


async def awaits(instance: Any, *user: Any, **keywords: Any) -> bool:
    """
    Refuse, if anybody waits for the answer.
    """
    return False


def yields(instance: Any, *user: Any, **keywords: Any) -> Any:
    """
    Refuse, if anybody asks for the first value.
    """
    yield False


async def yields_later(instance: Any, *user: Any, **keywords: Any) -> Any:
    """
    Refuse, if anybody waits for the first value.
    """
    yield False


class Awaits:
    """
    Be called, and answer later.
    """

    async def __call__(self, instance: Any, *user: Any, **keywords: Any) -> bool:
        """
        Refuse, if anybody waits for the answer.
        """
        return False


class AwaitsToo(Awaits):
    """
    Inherit the way to be called.
    """


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("hook", [awaits, yields, yields_later, Awaits(), AwaitsToo(), partial(awaits, weight=1)])
def test_hook_that_would_never_run_is_refused(slot: str, hook: Any) -> None:
    """
    A coroutine or generator is true before it ran: as a guard it would let everybody pass, as work it would do nothing.
    """
    words = refused(Transition, "approve", ["draft"], "approved", **{slot: [passes, hook]})

    assert words.startswith(f"django_logic.Transition('approve').{slot}")


@pytest.mark.parametrize("slot", SLOTS)
def test_hook_that_runs_async_code_itself_is_fine(slot: str) -> None:
    """
    What waits for the coroutine is a plain function, wrapped or not.
    """

    @wraps(awaits)
    def waits(instance: Any, *user: Any, **keywords: Any) -> bool:
        return async_to_sync(awaits)(instance, *user, **keywords)

    made = Transition("approve", ["draft"], "approved", **{slot: [waits, async_to_sync(awaits)]})

    assert len(getattr(made, slot)) == 2
    assert waits(None) is False
