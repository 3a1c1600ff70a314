"""
Prove what a call makes of its keywords before anything is touched.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from django_logic import Transition
from django_logic.call import Call, hook_keywords
from tests.app.models import Ticket
from tests.flows import call_on, declare

FLOW = declare(Transition("go", ["new"], "done"))
HOOK_NAMES = {"user", "actor", "reason", "transition_id", "tr_id", "root_id", "parent_id", "context"}


def made(**keywords: Any) -> Call:
    """
    Make the call of one action with these keywords.
    """
    return call_on(FLOW(instance=Ticket(pk=1)), action="go", **keywords)


def test_call_without_anybody_is_a_system_call() -> None:
    """
    Neither user nor actor: nobody is recorded and nobody is judged.
    """
    call = made()

    assert (call.user, call.actor, call.actor_id, call.actor_label, call.reason) == (None, None, "", "", "")


def test_user_is_judged_and_recorded() -> None:
    """
    ``user=`` alone is both.
    """
    ann = User(pk=7, username="ann")

    call = made(user=ann)

    assert (call.user, call.actor, call.actor_id, call.actor_label) == (ann, ann, "7", "ann")


def test_actor_object_is_judged_as_well() -> None:
    """
    Passing a person as the actor never skips permissions.
    """
    ann = User(pk=7, username="ann")

    call = made(actor=ann)

    assert (call.user, call.actor, call.actor_id) == (ann, ann, "7")


def test_user_is_judged_and_actor_recorded_when_both_are_given() -> None:
    """
    Somebody may act for somebody else: the user's rights count, the actor's name is kept.
    """
    ann, bob = User(pk=7, username="ann"), User(pk=8, username="bob")

    by_person, by_text = made(user=ann, actor=bob), made(user=ann, actor="warehouse")

    assert (by_person.user, by_person.actor_id, by_person.actor_label) == (ann, "8", "bob")
    assert (by_text.user, by_text.actor_id, by_text.actor_label) == (ann, "", "warehouse")


@pytest.mark.parametrize("text", ["warehouse", gettext_lazy("warehouse")])
def test_text_actor_is_recorded_only(text: Any) -> None:
    """
    A short text names a machine or a department, lazily or not; it is nobody's permission.
    """
    call = made(actor=text)

    assert (call.user, call.actor_id, call.actor_label) == (None, "", "warehouse")


@pytest.mark.parametrize("name", ["user", "actor"])
def test_anonymous_user_is_a_user(name: str) -> None:
    """
    A visitor is judged like everybody, through either keyword.
    """
    visitor = AnonymousUser()

    call = made(**{name: visitor})

    assert (call.user, call.actor_id, call.actor_label) == (visitor, "", "AnonymousUser")


@pytest.mark.parametrize("name", ["user", "actor"])
@pytest.mark.parametrize("person", [User(pk=7, username="ann"), AnonymousUser()])
def test_lazy_user_of_a_request_is_the_user_behind_it(name: str, person: Any) -> None:
    """
    ``request.user`` is a lazy object: it is judged and recorded as what it stands for.
    """
    lazy = SimpleLazyObject(lambda: person)

    call = made(**{name: lazy})

    assert call.user is not None
    assert call.user == person
    assert (call.actor_id, call.actor_label) == (str(person.pk or ""), person.get_username() or "AnonymousUser")


@pytest.mark.parametrize("user", [None])
def test_none_is_nobody(user: Any) -> None:
    """
    ``user=None`` and ``actor=None`` mean the same as leaving them out.
    """
    call = made(user=user, actor=user, reason=None)

    assert (call.user, call.actor, call.actor_label, call.reason) == (None, None, "", "")


def test_user_without_username_is_recorded_by_its_text() -> None:
    """
    Any object that looks like a user will do.
    """

    class Robot:
        is_authenticated = True
        pk = "r/2"

        def __str__(self) -> str:
            return "Robot 2"

    call = made(user=Robot())

    assert (call.actor_id, call.actor_label) == ("r/2", "Robot 2")


@pytest.mark.parametrize("person", [5, 0, False, ["ann"], {"pk": 1}, object(), b"ann", SimpleNamespace(pk=1)])
def test_actor_that_is_neither_user_nor_text_is_refused(person: Any) -> None:
    """
    A key, a flag or a dict in place of a person is a mistake that would lose the actor.
    """
    with pytest.raises(TypeError, match="actor= takes a user object or a short text; found"):
        made(actor=person)
    with pytest.raises(TypeError, match="actor= takes"):
        made(user=AnonymousUser(), actor=person)


@pytest.mark.parametrize("person", [5, 0, False, "ann", "", gettext_lazy("ann")])
def test_user_that_is_a_key_or_a_name_is_refused(person: Any) -> None:
    """
    ``user=`` is judged, so it has to be somebody a permission can look at.
    """
    with pytest.raises(TypeError, match="user= takes a user object; found"):
        made(user=person)


@pytest.mark.parametrize("name", ["state", "exception", "context", "request", "instance"])
def test_names_of_the_engine_are_refused(name: str) -> None:
    """
    A keyword that would shadow what hooks get from the engine is refused by name.
    """
    with pytest.raises(TypeError, match=rf"{name}="):
        made(**{name: 1})


@pytest.mark.parametrize("version", ["1", 1.0, True, False, [1]])
def test_version_that_is_no_whole_number_is_refused(version: Any) -> None:
    """
    ``expected_version=`` takes what ``process.version`` gives.
    """
    with pytest.raises(TypeError, match="expected_version="):
        made(expected_version=version)


def test_everything_else_reaches_the_hooks() -> None:
    """
    Other keywords are the hooks', beside the names the engine adds.
    """
    call = made(tracking="AB123", weight=3, user=None, expected_version=0)

    passed = hook_keywords(call)

    assert set(passed) == HOOK_NAMES | {"tracking", "weight"}
    assert (passed["tracking"], passed["weight"], passed["context"]) == ("AB123", 3, {})
    assert passed["transition_id"] == passed["tr_id"] == call.transition_id


def test_call_outside_any_other_is_its_own_root() -> None:
    """
    A first call starts a line of its own.
    """
    first, second = made(), made()

    assert first.root_id == first.transition_id
    assert first.parent_id is None
    assert first.transition_id != second.transition_id


@pytest.mark.parametrize("name", ["transition_id", "tr_id"])
def test_hook_that_passes_its_keywords_on_chains_the_calls(name: str) -> None:
    """
    Ids that come back as keywords make the new call a child of the one that gave them.
    """
    parent, root = uuid4(), uuid4()

    call = made(**{name: parent, "root_id": root, "parent_id": uuid4()})

    assert (call.parent_id, call.root_id) == (parent, root)
    assert call.transition_id not in (parent, root)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("checkout\x00done", "checkout\ufffddone"),
        ("\ud800 half", "? half"),
        ("🚚 dispatched — tracking AB123", "🚚 dispatched — tracking AB123"),
        (gettext_lazy("checkout"), "checkout"),
        (5, "5"),
        ("", ""),
    ],
)
def test_reason_is_kept_as_text_every_database_can_store(given: Any, kept: str) -> None:
    """
    NUL and lone surrogates are replaced, everything else is kept as it is.
    """
    assert made(reason=given).reason == kept


def test_long_reason_is_whole_and_long_actor_is_cut() -> None:
    """
    A reason may be a letter; an actor's label is a name and fits its column.
    """
    call = made(reason="x" * 1_000_000, actor="é" * 1_000)

    assert len(call.reason) == 1_000_000
    assert call.actor_label == "é" * 255


def test_call_is_frozen() -> None:
    """
    Nobody can change who asked for what once it is asked.
    """
    with pytest.raises(AttributeError):
        made().user = "root"
