"""
Prove what declarations of background work take, keep and refuse; no database is asked.
"""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic import Action, ProcessManager, Transition
from django_logic.background import BackgroundAction, BackgroundTransition, Backoff, PermanentFailure, Snooze
from tests.app.models import Grade, Status, Ticket
from tests.flows import declare


def nothing(instance: Any, **keywords: Any) -> None:
    """
    Do nothing.
    """


def transition(**slots: Any) -> BackgroundTransition:
    """
    Declare a background transition.
    """
    return BackgroundTransition("go", ["new"], "done", **slots)


def test_transition_keeps_what_it_was_given() -> None:
    """
    Every slot is kept under its name, lists as tuples, states as plain values.
    """
    retry = Backoff(first=1)

    made = BackgroundTransition(
        action_name="go",
        sources=[Status.DRAFT],
        target=Status.FULFILLED,
        in_progress_state=Status.PROCESSING,
        failed_state=Status.CANCELLED,
        queue="critical",
        timeout=600,
        no_retry_on=[KeyError],
        max_errors=3,
        retry=retry,
        priority=-5,
        side_effects=[nothing],
        next_transition="on",
        lock="nowait",
    )

    assert (made.sources, made.target, made.in_progress_state) == (("draft",), "fulfilled", "processing")
    assert (made.failed_state, made.queue, made.queue_name, made.timeout) == ("cancelled", "critical", "critical", 600)
    assert (made.no_retry_on, made.max_errors, made.retry, made.priority) == ((KeyError,), 3, retry, -5)
    assert (made.side_effects, made.next_transition, made.lock, made.atomic) == ((nothing,), "on", "nowait", True)
    assert (made.is_background, made.is_action) == (True, False)


def test_defaults_leave_the_choice_to_the_project(settings: Any) -> None:
    """
    Queue, attempts and pauses are the project's unless named; the queue is read when it is asked for.
    """
    made = transition()
    before = made.queue_name
    settings.DJANGO_LOGIC = {"DEFAULT_QUEUE": "backstage"}

    assert (made.queue, made.timeout, made.max_errors, made.retry, made.priority) == (None, None, None, None, 0)
    assert (made.in_progress_state, made.failed_state, made.no_retry_on, made.atomic) == (None, None, (), True)
    assert (before, made.queue_name) == ("django_logic", "backstage")


def test_action_has_neither_target_nor_busy_state() -> None:
    """
    A BackgroundAction takes the other slots and changes no state.
    """
    made = BackgroundAction("sync", "*", failed_state=0, timeout=0.5, queue="slow")

    assert (made.target, made.in_progress_state, made.failed_state, made.any_source) == (None, None, 0, True)
    assert (made.is_background, made.is_action) == (True, True)
    with pytest.raises(ImproperlyConfigured, match=r"BackgroundAction\('sync'\).*in_progress_state"):
        BackgroundAction("sync", ["new"], in_progress_state="busy")  # type: ignore[call-arg]
    with pytest.raises((TypeError, ImproperlyConfigured)):
        BackgroundAction("sync", ["new"], target="done")  # type: ignore[call-arg]


def test_declaration_is_frozen() -> None:
    """
    A slot can't be set or removed afterwards.
    """
    made = transition(queue="a")

    with pytest.raises(AttributeError, match="frozen"):
        made.queue = "b"
    with pytest.raises(AttributeError, match="frozen"):
        del made.queue
    assert made.queue == "a"


def test_integer_state_zero_is_a_state() -> None:
    """
    0 and "" are states like any other, also as busy and failed state.
    """
    made = BackgroundTransition("go", [Grade.GOLD], Grade.BRONZE, in_progress_state=Grade.NONE, failed_state=7)
    empty = BackgroundTransition("go", ["x"], "y", in_progress_state="", failed_state="f")

    assert (made.in_progress_state, empty.in_progress_state) == (0, "")


@pytest.mark.parametrize("make", [Transition, lambda *a, **kw: Action(*a[:2], **kw)])
def test_synchronous_declaration_has_no_busy_state(make: Any) -> None:
    """
    A busy state may be written only together with the row that will finish the work.
    """
    with pytest.raises(ImproperlyConfigured, match="in_progress_state belongs to BackgroundTransition"):
        make("go", ["new"], "done", in_progress_state="busy")


@pytest.mark.parametrize("slot", ["queue", "timeout", "no_retry_on", "max_errors", "retry", "priority", "atomic"])
def test_synchronous_declaration_has_no_background_slot(slot: str) -> None:
    """
    Slots of background work are unknown keywords elsewhere.
    """
    with pytest.raises(ImproperlyConfigured, match=f"unknown keyword '{slot}'"):
        Transition("go", ["new"], "done", **{slot: None})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("slots", "says"),
    [
        ({"in_progress_state": "x", "failed_state": "x"}, "failed_state and in_progress_state are both 'x'"),
        ({"in_progress_state": "done"}, "in_progress_state and target are both 'done'"),
        ({"in_progress_state": 1.5}, "in_progress_state: a state must be"),
        ({"in_progress_state": True}, "in_progress_state: a state must be"),
        ({"in_progress_state": ["busy"]}, "in_progress_state: a state must be"),
        ({"queue": ""}, "queue must be a non-empty text"),
        ({"queue": "  "}, "queue must be a non-empty text"),
        ({"queue": 5}, "queue must be a non-empty text"),
        ({"queue": b"a"}, "queue must be a non-empty text"),
        ({"queue": "a,b"}, "no worker could be told to serve 'a,b'"),
        ({"queue": " a"}, "no worker could be told to serve ' a'"),
        ({"queue": "a\n"}, "no worker could be told to serve"),
        ({"queue": "a\x00b"}, "no worker could be told to serve"),
        ({"queue": "q" * 101}, "no worker could be told to serve"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": 10**400}, "timeout must be a number of seconds above 0"),
        ({"timeout": -1}, "timeout must be"),
        ({"timeout": True}, "timeout must be"),
        ({"timeout": "600"}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"timeout": float("inf")}, "timeout must be"),
        ({"timeout": Decimal(5)}, "timeout must be"),
        ({"no_retry_on": KeyError}, "no_retry_on must be a list of exception classes"),
        ({"no_retry_on": "KeyError"}, "no_retry_on must be a list of exception classes"),
        ({"no_retry_on": None}, "no_retry_on must be a list of exception classes"),
        ({"no_retry_on": [KeyError()]}, "no_retry_on must hold exception classes"),
        ({"no_retry_on": [int]}, "no_retry_on must hold exception classes"),
        ({"no_retry_on": ["KeyError"]}, "no_retry_on must hold exception classes"),
        ({"max_errors": 0}, "max_errors must be a whole number from 1"),
        ({"max_errors": -1}, "max_errors must be"),
        ({"max_errors": True}, "max_errors must be"),
        ({"max_errors": 2.0}, "max_errors must be"),
        ({"max_errors": "3"}, "max_errors must be"),
        ({"max_errors": 40_000}, "max_errors must be"),
        ({"retry": 30}, "retry must be a Backoff"),
        ({"retry": Backoff}, "retry must be a Backoff"),
        ({"priority": None}, "priority must be a whole number"),
        ({"priority": 1.0}, "priority must be a whole number"),
        ({"priority": True}, "priority must be a whole number"),
        ({"priority": 40_000}, "priority must be a whole number"),
        ({"atomic": False}, "atomic must be True in this release"),
        ({"atomic": 1}, "atomic must be True in this release"),
        ({"queu": "a"}, "unknown keyword 'queu'"),
        ({"lock": "none"}, "lock must be one of row, nowait, cache"),
        ({"side_effects": nothing}, "side_effects must be a list of callables"),
    ],
)
def test_slot_that_can_not_be_right_is_refused_with_its_dotted_name(slots: dict[str, Any], says: str) -> None:
    """
    A mistake fails at import: the message starts with the declaration's name and says what fits.
    """
    with pytest.raises(ImproperlyConfigured) as refused:
        transition(**slots)

    assert says in str(refused.value)
    assert str(refused.value).startswith(
        ("django_logic.background.BackgroundTransition('go')", "django_logic.BackgroundTransition('go')")
    )


def test_sources_and_names_obey_the_rules_of_every_transition() -> None:
    """
    Sources given as text, no source, or an empty action name are refused here too.
    """
    for arguments in (("go", "new", "done"), ("go", [], "done"), ("", ["new"], "done"), ("_go", ["new"], "done")):
        with pytest.raises(ImproperlyConfigured):
            BackgroundTransition(*arguments)


@pytest.mark.parametrize(
    "values",
    [
        {"first": -1},
        {"first": "30"},
        {"first": True},
        {"first": float("nan")},
        {"first": None},
        {"factor": 0.5},
        {"factor": 0},
        {"factor": "2"},
        {"limit": -1},
        {"limit": float("inf")},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": "0"},
        {"jitter": None},
    ],
)
def test_backoff_refuses_numbers_that_make_no_sense(values: dict[str, Any]) -> None:
    """
    A negative, infinite or textual value is refused with the slot's name, whatever its type.
    """
    with pytest.raises(ImproperlyConfigured, match=next(iter(values))):
        Backoff(**values)


def test_backoff_grows_by_its_factor_to_its_limit() -> None:
    """
    The first pause follows the first error; a power no float holds is past every limit.
    """
    steady = Backoff(first=30, factor=2.0, limit=3600, jitter=0)

    assert [steady.pause(errors) for errors in (0, 1, 2, 3, 7, 8, 50, 100_000)] == [
        *(30, 30, 60, 120),
        *(1920, 3600, 3600, 3600),
    ]
    assert Backoff(first=1, factor=1e300, limit=10, jitter=0).pause(500) == 10
    assert Backoff(first=0, jitter=0).pause(3) == 0


def test_backoff_is_spread_within_its_jitter() -> None:
    """
    jitter is the share by which a pause may be shorter or longer.
    """
    pauses = [Backoff(first=100, factor=1, limit=100, jitter=0.25).pause(1) for _ in range(300)]

    assert all(75 <= pause <= 125 for pause in pauses)
    assert max(pauses) - min(pauses) > 20


def test_backoff_has_the_documented_defaults() -> None:
    """
    Backoff() means 30 seconds, doubled, up to an hour, a tenth of spread.
    """
    made = Backoff()

    assert (made.first, made.factor, made.limit, made.jitter) == (30, 2.0, 3600, 0.1)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "5", None])
def test_snooze_takes_seconds(seconds: Any) -> None:
    """
    What is no number of seconds is refused where it is raised.
    """
    with pytest.raises(ValueError, match="Snooze takes a number of seconds"):
        Snooze(seconds)

    assert Snooze(0).seconds == 0.0
    assert Snooze(1.5).seconds == 1.5


def test_permanent_failure_is_an_ordinary_exception() -> None:
    """
    Projects may derive from it, and it carries what they give it.
    """

    class Refused(PermanentFailure):
        pass

    assert Refused("customs", 5).args == ("customs", 5)
    assert isinstance(Refused(), Exception)


def test_process_lists_background_declarations_among_its_transitions() -> None:
    """
    A process with background work knows its edges and states, the busy and failed ones included.
    """
    process = declare(
        BackgroundTransition("go", ["new"], "done", in_progress_state="busy", failed_state="failed"),
        BackgroundAction("act", ["done"], failed_state="broken"),
    )
    tree = process(Ticket()).tree

    assert tree.has_background
    assert tree.states == {"new", "busy", "done", "failed", "broken"}
    assert tree.edges == {("new", "busy"), ("busy", "done"), ("busy", "failed"), ("done", "broken")}


def test_star_means_every_declared_state_but_the_target() -> None:
    """
    sources="*" leaves the target out; the declaration's own busy state is a source for recovery.
    """
    process = declare(
        BackgroundTransition("go", "*", "done", in_progress_state="busy", failed_state="failed"),
        Transition("reset", ["done"], "new"),
    )

    (candidate,) = process(Ticket()).tree.by_action["go"]

    assert candidate.sources == {"busy", "failed", "new"}


@pytest.mark.parametrize("value", ["false", 1, None])
def test_durable_callbacks_is_true_or_false(value: Any) -> None:
    """
    Process.durable_callbacks refuses what is no truth value.
    """
    with pytest.raises(ImproperlyConfigured, match="durable_callbacks must be True or False"):
        declare(transition(), durable_callbacks=value)


def test_next_transition_that_nobody_declares_is_refused_at_the_bind() -> None:
    """
    A follow-up's name is looked up when the process is bound.
    """
    process = declare(transition(next_transition="onn"), BackgroundTransition("on", ["done"], "over"))

    with pytest.raises(ImproperlyConfigured, match="'onn', which nothing declares"):
        ProcessManager.bind_model_process(Ticket, process)


def test_enum_members_are_read_as_their_values() -> None:
    """
    A member of any enum stands for its value.
    """

    class Kind(Enum):
        BUSY = "busy"

    assert transition(in_progress_state=Kind.BUSY).in_progress_state == "busy"


def test_hook_that_nobody_would_run_is_refused() -> None:
    """
    A coroutine function as a side effect or callback would never do its work.
    """

    async def later(instance: Any, **keywords: Any) -> None:
        pass

    for slot in ("side_effects", "callbacks", "failure_callbacks", "prepare"):
        with pytest.raises(ImproperlyConfigured, match=slot):
            transition(**{slot: [later]})
