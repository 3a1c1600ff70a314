"""
Prove what the admin shows of background work, what it lets people do, and what it hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.module_loading import import_string

from django_logic.background import Backoff, PermanentFailure, codec, run_available
from django_logic.background.explain import Code
from django_logic.background.models import Cancellation, Kind, TransitionMessage
from tests.admin_site import act, admin_installed, client_of, listed, page
from tests.app.hooked import Boom, stored
from tests.app.models import Ticket
from tests.background.flows import Flow, message, new_ticket, work
from tests.background.onlookers import enter_worker, lock, session

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/django_logic_background/transitionmessage/"
WORKERS = "/admin/django_logic_background/worker/"


@pytest.fixture(autouse=True)
def admin_site() -> Iterator[None]:
    """
    Install the admin for the length of one test.
    """
    with admin_installed():
        yield


@pytest.fixture
def masked() -> Callable[[Any], Any]:
    """
    Give what masks keywords; its package can be imported only where the admin is installed.
    """
    found: Callable[[Any], Any] = import_string("django_logic.background.admin.masked")
    return found


@pytest.fixture
def boss() -> Client:
    """
    Give the browser of a superuser.
    """
    return client_of(is_superuser=True)


def failing(instance: Any, **keywords: Any) -> None:
    """
    Fail.
    """
    raise Boom("no route")


def giving_up(instance: Any, **keywords: Any) -> None:
    """
    Fail for good.
    """
    raise PermanentFailure("never")


@pytest.fixture
def ticket(flow: Flow) -> Ticket:
    """
    Give an object whose work pauses after an error, beside others that wait and that have ended.
    """
    flow(
        work(failing, queue="a", retry=Backoff(first=600, limit=600, factor=1)),
        work(action="other", queue="b"),
        work(giving_up, action="fail", queue="a"),
    )
    first, second, third = new_ticket(), new_ticket(), new_ticket()
    first.flow.go(password="hunter2", lines=[1, {"api_token": "t0ps3cret", "size": 4}])
    third.flow.fail()
    run_available()
    second.flow.other()
    return first


def test_list_tells_the_reason_of_every_open_row(boss: Client, ticket: Ticket) -> None:
    """
    Each row of the page has its reason code, ended ones their outcome.
    """
    text = page(boss, LIST)

    assert 'class="field-code">retry_pause_until<' in text
    assert 'class="field-code">no_worker_for_queue<' in text
    assert 'class="field-outcome">failed<' in text


def test_list_costs_the_same_queries_however_long_it_is(boss: Client, ticket: Ticket) -> None:
    """
    The reasons of a page are asked for together.
    """
    costs = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            page(boss, LIST)
        costs.append(len(queries))
        for _number in range(5):
            new_ticket().flow.other()

    assert costs[0] == costs[1]


def test_list_is_narrowed_by_reason(boss: Client, ticket: Ticket) -> None:
    """
    The filter keeps the open rows with one reason, by the same code as everywhere.
    """
    paused = message(ticket).pk
    waiting = TransitionMessage.objects.get(queue_name="b").pk

    assert listed(boss, LIST, code="retry_pause_until") == [paused]
    assert listed(boss, LIST, code="no_worker_for_queue") == [waiting]
    assert listed(boss, LIST, code="claimable_now") == []
    enter_worker("b")
    assert listed(boss, LIST, code="claimable_now") == [waiting]
    text = page(boss, LIST)
    assert all(f"?code={code}" in text for code in Code if code is not Code.HELD_SNAPSHOT)


def test_list_is_narrowed_by_queue_outcome_and_kind(boss: Client, ticket: Ticket) -> None:
    """
    Queues that are in use or in which rows wait can be chosen, and how rows ended, and what they ask for.
    """
    waiting = TransitionMessage.objects.get(queue_name="b").pk
    failed = TransitionMessage.objects.get(outcome="failed").pk
    text = page(boss, LIST)

    assert ("?queue=a" in text, "?queue=b" in text) == (True, True)
    assert listed(boss, LIST, queue="b") == [waiting]
    assert listed(boss, LIST, outcome__exact="failed") == [failed]
    assert listed(boss, LIST, kind__exact=str(Kind.CALLBACK)) == []


def test_list_finds_rows_by_their_object(boss: Client, ticket: Ticket) -> None:
    """
    The search takes the object's key.
    """
    assert listed(boss, LIST, q=str(ticket.pk)) == [message(ticket).pk]


def test_row_tells_its_reason_in_full_and_the_next_command(boss: Client, ticket: Ticket) -> None:
    """
    The page of a row has the explanation and what to type.
    """
    pk = message(ticket).pk

    text = page(boss, f"{LIST}{pk}/change/")

    assert "retry_pause_until: " in text
    assert f"<code>manage.py dl_transitions --send {pk}</code>" in text
    assert "Boom: no route" in text


def test_row_that_has_ended_says_how(boss: Client, ticket: Ticket) -> None:
    """
    Instead of a reason there is the outcome.
    """
    failed = TransitionMessage.objects.get(outcome="failed")

    assert "It has ended: failed" in page(boss, f"{LIST}{failed.pk}/change/")


def test_secrets_among_the_keywords_are_masked(boss: Client, ticket: Ticket) -> None:
    """
    Keywords are shown, the values of keys that look like secrets are not, at any depth.
    """
    text = page(boss, f"{LIST}{message(ticket).pk}/change/")

    assert ("hunter2" in text, "t0ps3cret" in text) == (False, False)
    assert ("password" in text, "api_token" in text, "&quot;size&quot;: 4" in text) == (True, True, True)


class Login(NamedTuple):
    """
    Hold what somebody signs in with.
    """

    name: str
    password: str


DEEP: Any = {"secret_key": "s3cret", "size": 4}
for _level in range(15):
    DEEP = {"inner": DEEP}


@pytest.mark.parametrize(
    "keywords",
    [
        {"password": "s3cret"},
        {"Authorization": {"scheme": "s3cret"}},
        {"headers": [{"X-Api-Key": "s3cret"}]},
        {"unusual": {1: "one", "accessToken": "s3cret"}},
        {"late": {"z": 1, "a_secret": "s3cret"}},
        {"deep": DEEP},
        {"cookie": "s3cret", "credentials": ("s3cret", 1)},
        {"login": Login("ada", "s3cret")},
    ],
)
def test_masking_reaches_every_form_in_which_keywords_are_stored(
    masked: Callable[[Any], Any], keywords: dict[str, Any]
) -> None:
    """
    Dicts with unusual keys and deep structures are stored in forms of their own; secrets are found there too.
    """
    stored_form = codec.encode(keywords)

    assert "s3cret" in str(stored_form)
    assert "s3cret" not in str(masked(stored_form))


def test_masking_leaves_what_is_no_secret(masked: Callable[[Any], Any]) -> None:
    """
    Everything else is shown as it is stored.
    """
    plain = codec.encode({"lines": [1, 2], "when": (1, "a"), "note": {"text": "x"}})

    assert masked(plain) == plain


def test_keywords_can_not_be_guessed_by_narrowing_the_list(boss: Client, ticket: Ticket) -> None:
    """
    A list that could be narrowed by stored keywords would tell secrets by the number of its rows.
    """
    answers = [boss.get(LIST, {lookup: "hunter2"}).status_code for lookup in ("kwargs__password", "kwargs__icontains")]

    assert answers == [400, 400]


def test_nothing_can_be_edited_added_or_deleted(boss: Client, ticket: Ticket) -> None:
    """
    Even a superuser only looks at a row: no form, no save, no delete, no delete action.
    """
    row = message(ticket)
    text = page(boss, f"{LIST}{row.pk}/change/")

    assert ('name="_save"' in text, "deletelink" in text) == (False, False)
    assert "delete_selected" not in page(boss, LIST)
    assert boss.post(f"{LIST}{row.pk}/change/", {"queue_name": "x"}).status_code == 403
    assert boss.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert boss.get(f"{LIST}add/").status_code == 403
    assert message(ticket).queue_name == "a"


def test_send_now_ends_the_pause_of_the_selected_rows(boss: Client, ticket: Ticket) -> None:
    """
    The action makes rows due now; those that can't be sent are named.
    """
    failed = TransitionMessage.objects.get(outcome="failed").pk

    said = act(boss, LIST, "send_now", message(ticket).pk, failed)

    assert said == [f"Row {failed} has ended: failed. Nothing waits.", "1 row is due now."]
    assert run_available() == 2
    assert message(ticket).errors_count == 2


def test_cancel_ends_the_selected_rows_with_the_reason_and_the_user(boss: Client, ticket: Ticket) -> None:
    """
    The action takes the failure path, and records who asked and why.
    """
    said = act(boss, LIST, "cancel", message(ticket).pk, reason="not needed")

    assert said == ["1 row was cancelled."]
    assert (message(ticket).outcome, stored(ticket)) == ("cancelled", "failed")
    assert "not needed" in message(ticket).last_error_message
    assert "boss" in message(ticket).last_error_message


def test_cancel_asks_an_attempt_that_runs(only_postgres: None, boss: Client, ticket: Ticket) -> None:
    """
    A row that is held is not waited for.
    """
    pk = message(ticket).pk
    with session() as other:
        lock(other, pk)

        said = act(boss, LIST, "cancel", pk)

    assert said == ["1 attempt runs and was asked to stop."]
    assert Cancellation.objects.get().message_id == pk


def test_many_refusals_are_summed_up(boss: Client, ticket: Ticket) -> None:
    """
    A page of rows that can't be sent does not fill the screen.
    """
    for _ in range(7):
        new_ticket().flow.fail()
    run_available()
    ended = TransitionMessage.objects.filter(outcome="failed").values_list("pk", flat=True)

    said = act(boss, LIST, "send_now", *ended)

    assert (len(said), said[-1]) == (6, "And 3 more.")


@pytest.mark.parametrize(("permission", "has_actions"), [("view", False), ("change", True)])
def test_actions_need_the_permission_to_change(ticket: Ticket, permission: str, has_actions: bool) -> None:
    """
    Who may only view sees everything and can do nothing, not by a forged form either.
    """
    client = client_of(permissions=[f"{permission}_transitionmessage"])

    text = page(client, LIST)
    act(client, LIST, "cancel", message(ticket).pk)

    assert ("send_now" in text) is has_actions
    assert message(ticket).is_completed is has_actions
    assert "retry_pause_until" in page(client, f"{LIST}{message(ticket).pk}/change/") or has_actions


def test_nobody_without_permission_sees_rows_or_workers(ticket: Ticket) -> None:
    """
    Staff without rights on background work is refused.
    """
    client = client_of()

    assert [client.get(address).status_code for address in (LIST, WORKERS)] == [403, 403]


def test_workers_are_listed_with_whether_they_live(boss: Client) -> None:
    """
    Which workers there are, what they serve and whether they were seen just now; nothing can be edited.
    """
    enter_worker("a", "b", name="left")
    right = enter_worker("a", name="right", seen=40)

    text = page(boss, WORKERS)

    assert text.count('alt="True"') == 1
    assert 'class="field-is_alive"><img src="/static/admin/img/icon-no.svg" alt="False"' in text
    assert boss.post(f"{WORKERS}{right.pk}/change/", {"name": "x"}).status_code == 403
    assert boss.get(f"{WORKERS}add/").status_code == 403
