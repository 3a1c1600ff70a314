"""
Prove that whoever asked stays whoever asked: users, names and nobody, on the worker and in what follows.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from django_logic import Transition
from django_logic.background import run_available
from django_logic.background.people import DepartedUser
from tests.app.hooked import Diary, stored
from tests.app.models import Ticket
from tests.background.flows import Flow, message, messages, new_ticket, run_out, work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def seen(flow: Flow) -> list[Any]:
    """
    Bind a process that writes down who asked, in a side effect and in a callback.
    """
    found: list[Any] = []

    def note(instance: Any, user: Any, actor: Any, **keywords: Any) -> None:
        found.append((user, actor))

    flow(work(note, callbacks=[note]))
    return found


def test_user_is_loaded_again(seen: list[Any], ticket: Ticket, clerk: Any) -> None:
    """
    user= arrives in every hook as the user it was, and as the actor.
    """
    User.objects.filter(pk=clerk.pk).update(first_name="edited since")
    ticket.flow.go(user=clerk)
    run_available()

    assert seen == [(clerk, clerk)] * 2
    assert all(type(user) is User and user.first_name == "edited since" for user, _actor in seen)


def test_lazy_user_of_a_request_is_the_user(seen: list[Any], ticket: Ticket, clerk: Any) -> None:
    """
    request.user is a lazy object; the row holds the user behind it.
    """
    ticket.flow.go(user=SimpleLazyObject(lambda: clerk))
    run_available()

    assert seen == [(clerk, clerk)] * 2
    assert message(ticket).user_id == str(clerk.pk)


def test_actor_given_beside_a_user_is_recorded_and_the_user_judged(seen: list[Any], ticket: Ticket, clerk: Any) -> None:
    """
    user and actor may be two people; both arrive, and history tells the actor.
    """
    boss = User.objects.create_user("boss")
    ticket.flow.go(user=clerk, actor=boss)
    run_available()

    assert seen == [(clerk, boss)] * 2
    assert list(ticket.flow.history.values_list("actor_label", flat=True)) == ["boss", "boss"]
    assert (message(ticket).user_id, message(ticket).actor_id) == (str(clerk.pk), str(boss.pk))


def test_user_given_as_actor_alone_counts_as_the_user(seen: list[Any], ticket: Ticket, clerk: Any) -> None:
    """
    actor=<user> without user= is judged too, and stays so on the worker.
    """
    ticket.flow.go(actor=clerk)
    run_available()

    assert seen == [(clerk, clerk)] * 2


@pytest.mark.parametrize("actor", ["warehouse", gettext_lazy("warehouse")])
def test_name_stays_a_name(seen: list[Any], ticket: Ticket, actor: Any) -> None:
    """
    actor="warehouse" is text on both sides and no user.
    """
    ticket.flow.go(actor=actor)
    run_available()

    assert seen == [(None, "warehouse")] * 2
    assert list(ticket.flow.history.values_list("actor_id", "actor_label")) == [("", "warehouse")] * 2


def test_name_beside_a_user_stays_apart_from_it(seen: list[Any], ticket: Ticket, clerk: Any) -> None:
    """
    A user who acts under a name is judged as the user and recorded as the name.
    """
    ticket.flow.go(user=clerk, actor="night shift")
    run_available()

    assert seen == [(clerk, "night shift")] * 2


def test_nobody_stays_nobody(seen: list[Any], ticket: Ticket) -> None:
    """
    A system call is one on the worker too: user and actor are None.
    """
    ticket.flow.go()
    run_available()

    assert seen == [(None, None)] * 2
    assert message(ticket).user_id is None


def test_anonymous_user_stays_anonymous(seen: list[Any], ticket: Ticket) -> None:
    """
    AnonymousUser comes back as AnonymousUser and never as nobody.
    """
    ticket.flow.go(user=AnonymousUser())
    run_available()

    assert [(type(user), type(actor)) for user, actor in seen] == [(AnonymousUser, AnonymousUser)] * 2
    assert message(ticket).user_id == ""


def test_user_that_was_never_saved_has_no_rights_on_the_worker(seen: list[Any], ticket: Ticket) -> None:
    """
    A user without a key can't be loaded: somebody without rights stands in, not nobody.
    """
    ticket.flow.go(user=User(username="passing by"))
    run_available()

    assert all(user is not None and not user.is_authenticated for user, _actor in seen)


def test_deleted_user_is_replaced_by_one_without_rights(seen: list[Any], ticket: Ticket, clerk: Any) -> None:
    """
    A user whose row is gone comes back as a stand-in that has the name and no right at all.
    """
    key = clerk.pk
    ticket.flow.go(user=clerk)
    clerk.delete()
    run_available()

    for user, actor in seen:
        assert user is not None
        assert isinstance(user, DepartedUser)
        assert (user.pk, user.get_username(), str(actor)) == (str(key), "clerk", "clerk")
        rights = [user.is_authenticated, user.is_active, user.is_staff, user.is_superuser]
        rights += [user.has_perm("any"), user.has_perms(["any"]), user.has_module_perms("app")]
        assert rights == [False] * 7
        assert user.is_anonymous
    assert len(seen) == 2


def is_staff(instance: Any, user: Any, **keywords: Any) -> bool:
    """
    Ask as permissions do.
    """
    return bool(user.is_staff)


@pytest.mark.parametrize("who", ["anonymous", "deleted", "unprivileged"])
@pytest.mark.parametrize("is_background", [True, False])
def test_follow_up_of_a_user_without_rights_is_refused(
    flow: Flow, diary: Diary, ticket: Ticket, clerk: Any, who: str, is_background: bool
) -> None:
    """
    Permissions of what follows are asked with the user the call was made with, also when it is anonymous or gone.
    """
    slots: dict[str, Any] = {"permissions": [is_staff], "side_effects": [diary.hook("on")]}
    on: Any = Transition("on", ["done"], "over", **slots)
    if is_background:
        on = work(diary.hook("on"), action="on", sources=["done"], target="over", permissions=[is_staff])
    flow(work(next_transition="on"), on)
    User.objects.filter(pk=clerk.pk).update(is_staff=who == "deleted")
    ticket.flow.go(user=AnonymousUser() if who == "anonymous" else clerk)
    if who == "deleted":
        clerk.delete()

    run_out()

    row = message(ticket, "next")
    assert (stored(ticket), diary) == ("done", [])
    assert (row.outcome, "is_staff" in row.last_error_message) == ("succeeded", True)


def test_follow_up_without_a_user_skips_permissions(flow: Flow, ticket: Ticket) -> None:
    """
    A system call stays one: what follows it asks nobody's permission.
    """
    flow(
        work(next_transition="on"),
        work(action="on", sources=["done"], target="over", permissions=[is_staff]),
    )
    ticket.flow.go(actor="cron")
    run_out()

    assert stored(ticket) == "over"
    assert [row.actor_label for row in messages(ticket, "transition")] == ["cron", "cron"]


def test_follow_up_of_staff_may_run(flow: Flow, ticket: Ticket, clerk: Any) -> None:
    """
    A user who has the right passes, as in the call itself.
    """
    User.objects.filter(pk=clerk.pk).update(is_staff=True)
    flow(
        work(next_transition="on"),
        work(action="on", sources=["done"], target="over", permissions=[is_staff]),
    )
    ticket.flow.go(user=clerk)
    run_out()

    assert stored(ticket) == "over"
    assert [row.user_id for row in messages(ticket, "transition")] == [str(clerk.pk)] * 2


def test_keyword_named_user_id_is_a_keyword(flow: Flow) -> None:
    """
    user_id= is no name of the engine's: it arrives as it was given.
    """
    seen: list[Any] = []
    ticket = new_ticket()
    flow(work(lambda instance, user_id, **kw: seen.append((user_id, kw["user"]))))

    ticket.flow.go(user_id=17)
    run_available()

    assert seen == [(17, None)]


def test_reason_and_names_of_any_text_are_stored(flow: Flow, ticket: Ticket) -> None:
    """
    NUL, lone surrogates and long texts in reason and actor reach the row as they reach history.
    """
    flow(work())

    ticket.flow.go(actor="a\x00b\ud800" + "é" * 400, reason="r\x00\udfff" + "x" * 20_000)
    run_available()

    row = message(ticket)
    assert row.outcome == "succeeded"
    assert set(ticket.flow.history.values_list("actor_label", "reason")) == {(row.actor_label, row.reason)}
    assert (len(row.actor_label), len(row.reason)) == (255, 20_003)
