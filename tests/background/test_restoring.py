"""
Prove how a row finds its object, process and declaration again, and what becomes of one that can't.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_logic import Process, ProcessManager, Transition
from django_logic.background import BackgroundTransition, attempt, run_available
from django_logic.background.models import TransitionMessage
from tests.app.hooked import Diary, moves, stored
from tests.app.models import (
    Base,
    Child,
    Legacy,
    Level,
    Numbered,
    Odd,
    Order,
    OrderProxy,
    SlugDocument,
    StampedChild,
    Status,
    Ticket,
    Typed,
    UuidDocument,
)
from tests.background import flows
from tests.background.flows import AT_ONCE, Flow, age, declare, make_due, message, messages, rename, run_out, work
from tests.flows import Bind

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (UuidDocument, {}),
        (SlugDocument, {"slug": "a/b c?é'%s"}),
        (SlugDocument, {"slug": "7"}),
        (Ticket, {"pk": 2**62 + 1}),
        (Child, {}),
        (Numbered, {"number": 1_000_000}),
        (StampedChild, {}),
        (Legacy, {}),
        (Odd, {}),
    ],
)
def test_object_of_every_kind_of_key_is_found_again(flow: Flow, model: Any, values: dict[str, Any]) -> None:
    """
    Whole numbers, UUIDs, text, inherited keys, odd names: the row holds the owner's key as text and leads back to it.
    """
    seen: list[Any] = []
    made = model._base_manager.create(**values)
    decoy = model._base_manager.create(**({"slug": "decoy"} if model is SlugDocument else {}))
    flow(work(lambda instance, **kw: seen.append((type(instance), instance.pk))), model=model)

    made.flow.go()
    run_available()

    assert seen == [(model, made.pk)]
    assert TransitionMessage.objects.get().outcome == "succeeded"
    assert (stored(made), stored(decoy), moves(made, "flow")) == ("done", "new", [("new", "busy"), ("busy", "done")])


def test_proxy_and_concrete_class_share_one_gate(flow: Flow) -> None:
    """
    A row recorded through a proxy keeps the concrete class out, and the attempt gets the proxy the caller used.
    """
    seen: list[Any] = []
    order = Order.objects.create()
    flow(
        work(lambda instance, **kw: seen.append(type(instance)), sources=["draft"]),
        model=Order,
        field="status",
    )
    proxy = OrderProxy.objects.get(pk=order.pk)

    proxy.flow.go()
    reasons = [reason.code for reason in order.flow.why_not("go")]
    run_available()

    row = message(order)
    assert reasons == ["background_in_flight"]
    assert (row.model_name, row.model_class, row.outcome) == ("order", "app.OrderProxy", "succeeded")
    assert seen == [OrderProxy]


def test_child_and_parent_share_one_gate(flow: Flow) -> None:
    """
    The column belongs to the parent: a row of the child keeps the parent out, and history is the same.
    """
    seen: list[Any] = []
    child = Child.objects.create(title="a child")
    flow(work(lambda instance, **kw: seen.append((type(instance), instance.title))), model=Base)
    parent = Base.objects.get(pk=child.pk)

    child.flow.go()
    reasons = [reason.code for reason in parent.flow.why_not("go")]
    run_available()

    row = message(parent)
    assert reasons == ["background_in_flight"]
    assert (row.model_name, row.model_class, row.outcome) == ("base", "app.Child", "succeeded")
    assert seen == [(Child, "a child")]
    assert moves(parent, "flow") == [("new", "busy"), ("busy", "done")]


def test_object_that_the_default_manager_hides_is_found(flow: Flow) -> None:
    """
    The object is loaded through the base manager: archived rows complete.
    """
    flow(work(), model=Odd)
    odd = Odd._base_manager.create()

    odd.flow.go()
    run_available()

    assert Odd.objects.count() == 0
    assert (stored(odd), message(odd).outcome) == ("done", "succeeded")


def test_integer_states_go_all_the_way(flow: Flow) -> None:
    """
    0 is a state like any other, as source, busy state and target.
    """
    level = Level.objects.create(state=1)
    flow(work(sources=[1], in_progress_state=0, target=2, failed_state=3), model=Level)

    level.flow.go()
    busy = stored(level)
    run_available()

    assert (busy, stored(level), moves(level, "flow")) == (0, 2, [("1", "0"), ("0", "2")])


def test_column_of_enum_members_goes_all_the_way(flow: Flow) -> None:
    """
    A field that gives enum members in Python is guarded and moved by its values.
    """
    typed = Typed.objects.create()
    flow(
        work(sources=[Status.DRAFT], in_progress_state=Status.PROCESSING, target=Status.FULFILLED, failed_state=None),
        model=Typed,
    )

    typed.flow.go()
    run_available()

    assert stored(typed) is Status.FULFILLED
    assert message(typed).outcome == "succeeded"


def siblings(diary: Diary) -> tuple[type[Process], type[Process], type[Process]]:
    """
    Make a process that nests two with one action name each, told apart by their conditions.
    """
    left = declare(work(diary.hook("left"), conditions=[lambda instance, **kw: instance.note == "left"]))
    right = declare(work(diary.hook("right"), conditions=[lambda instance, **kw: instance.note == "right"]))
    return declare(nested_processes=[left, right]), left, right


def test_row_restores_the_declaration_of_the_class_that_owns_it(bind: Bind, diary: Diary) -> None:
    """
    Two nested processes share an action name: the one that was chosen at the call runs, whatever holds later.
    """
    root, _left, right = siblings(diary)
    bind(root)
    ticket = Ticket.objects.create(note="right")

    ticket.flow.go()
    Ticket.objects.update(note="left")
    run_available()

    row = message(ticket)
    assert diary.names == ["right"]
    assert row.process_class == f"{flows.__name__}.{root.__name__}"
    assert row.owning_process_class == f"{flows.__name__}.{right.__name__}"


def test_row_without_its_owner_runs_the_only_declaration_of_that_name(bind: Bind, diary: Diary) -> None:
    """
    A declaring class that was renamed is no obstacle while the name is unique in the tree.
    """
    inner = declare(work(diary.hook("effect")))
    bind(declare(nested_processes=[inner]))
    ticket = Ticket.objects.create()

    ticket.flow.go()
    rename(inner, "RenamedInner")
    run_available()

    assert (diary.names, message(ticket).outcome) == (["effect"], "succeeded")


@pytest.mark.parametrize("owner", ["", "tests.background.flows.Gone"])
def test_row_that_could_mean_two_declarations_runs_none(bind: Bind, diary: Diary, owner: str) -> None:
    """
    Without the declaring class and with two of that name nothing is guessed: the row is put back and says why.
    """
    root, *_ = siblings(diary)
    bind(root)
    ticket = Ticket.objects.create(note="left")
    ticket.flow.go()
    TransitionMessage.objects.update(owning_process_class=owner)

    outcome = attempt.run(message(ticket).pk)

    assert outcome is not None
    assert (outcome.ended, diary) == ("deferred", [])
    assert "several background declarations called 'go'" in message(ticket).last_error_message


def test_diamond_of_processes_restores_its_one_declaration(bind: Bind, diary: Diary) -> None:
    """
    A process nested twice holds one declaration, not two of one name; a cycle ends.
    """
    shared = declare(work(diary.hook("effect")))
    left, right = declare(nested_processes=[shared]), declare(nested_processes=[shared])
    root = declare(nested_processes=[left, right])
    shared.nested_processes = [root]
    bind(root)
    ticket = Ticket.objects.create()

    ticket.flow.go()
    run_available()

    assert (diary.names, stored(ticket)) == (["effect"], "done")


def test_recorded_class_wins_over_a_namesake_bound_since(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Another class bound under the same process name does not take over rows of the first.
    """
    first = flow(work(diary.hook("recorded")))
    ticket.flow.go()
    ProcessManager.unbind_model_process(Ticket, first)
    flow(work(diary.hook("namesake")))

    run_available()

    assert (diary.names, stored(ticket)) == (["recorded"], "done")


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("process_class", "tests.background.flows.Gone", "tests.background.flows.Gone"),
        ("process_class", "no.such.module.Flow", "no.such.module.Flow"),
        ("process_class", "nonsense", "nonsense"),
        ("process_class", "", "process"),
        ("process_class", "os.path.join", "no process"),
        ("transition_name", "renamed", "no background declaration called 'renamed'"),
        ("model_class", "app.Gone", "app.Gone"),
        ("model_class", "nonsense", "nonsense"),
        ("field_name", "gone", "gone"),
    ],
)
def test_row_this_code_does_not_know_is_put_back_uncounted(
    flow: Flow, diary: Diary, ticket: Ticket, column: str, value: str, says: str
) -> None:
    """
    An unknown model, class, action or field may be known to newer code: deferred with a reason, nothing runs.
    """
    flow(work(diary.hook("effect"), failure_callbacks=[diary.hook("compensate")], max_errors=1))
    ticket.flow.go()
    TransitionMessage.objects.update(**{column: value})

    outcomes = [attempt.run(message(ticket).pk) for _ in range(3)]

    row = message(ticket)
    assert [outcome and outcome.ended for outcome in outcomes] == ["deferred"] * 3
    assert (row.is_completed, row.attempts_started, row.errors_count, row.claim_token) == (False, 0, 0, None)
    assert row.last_error_message.startswith("[deferred]")
    assert says in row.last_error_message
    assert (stored(ticket), diary) == ("busy", [])
    assert run_available() == 0


def test_sync_declaration_of_the_name_is_not_run_for_a_row(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A row runs background declarations only, also when a synchronous one has taken over its name.
    """
    flow(
        work(diary.hook("effect"), action="old"),
        Transition("new_name", ["new", "busy"], "done", side_effects=[diary.hook("other")]),
    )
    ticket.flow.old()
    TransitionMessage.objects.update(transition_name="new_name")

    outcome = attempt.run(message(ticket).pk)

    assert outcome is not None
    assert (str(outcome.ended), diary, stored(ticket)) == ("deferred", [], "busy")


@pytest.mark.parametrize(("hours", "pause"), [(0, 10), (0.02, 18), (0.5, 450), (2, 600), (20, 600)])
def test_deferred_row_waits_longer_the_longer_it_is_unknown(
    flow: Flow, ticket: Ticket, hours: float, pause: int
) -> None:
    """
    The pause of a row nobody knows grows from ten seconds to ten minutes with the time since it was put back first.
    """
    flow(work())
    ticket.flow.go()
    TransitionMessage.objects.update(transition_name="of a newer release")
    age(message(ticket), timedelta(days=30), "created")
    first = attempt.run(message(ticket).pk)
    age(message(ticket), timedelta(hours=hours), "last_error_dt")

    second = attempt.run(message(ticket).pk)

    row = message(ticket)
    assert first is not None
    assert second is not None
    assert (first.pause, second.pause) == (10, pytest.approx(pause, abs=2))
    assert (row.run_at - row.modified).total_seconds() == pytest.approx(pause, abs=2)


def test_deferred_row_runs_as_soon_as_the_code_knows_it(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Newer code takes a row that older code put back, with all its attempts left.
    """
    process = flow(work(diary.hook("effect"), max_errors=1))
    ticket.flow.go()
    name = process.__name__
    rename(process, "NotDeployedYet")
    run_available()
    rename(process, name)
    make_due()

    run_available()

    assert (diary.names, message(ticket).outcome, message(ticket).attempts_started) == (["effect"], "succeeded", 1)


def test_row_nobody_knows_for_too_long_is_closed(flow: Flow, diary: Diary, ticket: Ticket, settings: Any) -> None:
    """
    After TRANSITION_MESSAGE_UNRESTORABLE_HOURS an unknown row ends as unrestorable: no hook runs, no state is written.
    """
    flow(work(diary.hook("effect"), failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    TransitionMessage.objects.update(transition_name="gone")
    attempt.run(message(ticket).pk)
    age(message(ticket), timedelta(hours=23), "last_error_dt")
    first = attempt.run(message(ticket).pk)
    settings.DJANGO_LOGIC = {"TRANSITION_MESSAGE_UNRESTORABLE_HOURS": 22}

    second = attempt.run(message(ticket).pk)

    row = message(ticket)
    assert first is not None
    assert second is not None
    assert [first.ended, second.ended, row.outcome] == ["deferred", "unrestorable", "unrestorable"]
    assert (row.is_completed, row.ended_in_failure, row.errors_count) == (True, True, 0)
    assert row.last_error_message.startswith("[unrestorable]")
    assert (stored(ticket), diary) == ("busy", [])


def test_built_in_limit_for_unknown_rows_is_a_day(flow: Flow, ticket: Ticket) -> None:
    """
    Without a setting a row is closed 24 hours after it was put back first, however long it had waited before.
    """
    flow(work())
    ticket.flow.go()
    TransitionMessage.objects.update(transition_name="gone")
    age(message(ticket), timedelta(days=30), "created", "run_at")
    run_available()
    first = message(ticket)
    age(first, timedelta(hours=24, seconds=1), "last_error_dt", "run_at")

    run_available()

    assert (first.is_completed, message(ticket).outcome) == (False, "unrestorable")


@pytest.mark.parametrize("payload", [[1, 2], "text", {"lines": {"$type": "no such type", "value": 1}}])
def test_keywords_that_can_not_be_read_end_the_row(
    flow: Flow, ticket: Ticket, payload: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A corrupt payload counts as failed attempts; in the end failed_state is written and failure callbacks run without.
    """
    seen: list[Any] = []

    def compensate(instance: Any, exception: BaseException, **keywords: Any) -> None:
        seen.append((instance.state, sorted(keywords)))

    flow(work(max_errors=2, retry=AT_ONCE, failure_callbacks=[compensate]))
    ticket.flow.go()
    TransitionMessage.objects.update(kwargs=payload)

    run_out()

    row = message(ticket)
    engine = ["actor", "context", "parent_id", "reason", "root_id", "tr_id", "transition_id", "user"]
    assert (row.outcome, row.errors_count, stored(ticket)) == ("failed", 2, "failed")
    assert seen == [("failed", engine)]
    assert not TransitionMessage.objects.open().exists()


def test_vanished_reference_fails_for_good_and_names_it(flow: Flow, ticket: Ticket) -> None:
    """
    A model instance among the keywords that is gone takes the failure path at once, failure callbacks included.
    """
    seen: list[Any] = []

    def compensate(instance: Any, exception: BaseException, **keywords: Any) -> None:
        seen.append((instance.state, str(exception)))

    other = Ticket.objects.create()
    flow(work(failure_callbacks=[compensate]))
    ticket.flow.go(related=other)
    key = other.pk
    other.delete()

    run_out()

    row = message(ticket)
    assert (row.outcome, row.errors_count, stored(ticket)) == ("failed", 1, "failed")
    assert "app.Ticket" in row.last_error_message
    assert str(key) in row.last_error_message
    assert [state for state, _text in seen] == ["failed"]
    assert str(key) in seen[0][1]


def test_model_instance_among_the_keywords_is_loaded_again(flow: Flow, ticket: Ticket) -> None:
    """
    A reference is the object as it is when the work runs.
    """
    seen: list[Any] = []
    other = Ticket.objects.create()
    flow(work(lambda instance, related, **kw: seen.append((type(related), related.pk, related.note))))

    ticket.flow.go(related=other)
    Ticket.objects.filter(pk=other.pk).update(note="edited")
    run_available()

    assert seen == [(Ticket, other.pk, "edited")]


def test_module_that_breaks_on_import_counts_as_failed_attempts(
    flow: Flow, diary: Diary, ticket: Ticket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A process whose module raises on import costs its own row attempts until it ends, and no other row anything.
    """
    name = f"broken_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('broken on import')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    fine = Ticket.objects.create()
    flow(work(max_errors=2, retry=AT_ONCE))
    ticket.flow.go()
    TransitionMessage.objects.update(process_class=f"{name}.Flow")
    fine.flow.go()

    run_out()

    row = message(ticket)
    assert name not in sys.modules
    assert (row.is_completed, row.outcome, row.errors_count) == (True, "failed", 2)
    assert "broken on import" in row.last_error_message
    assert (message(fine).outcome, stored(fine)) == ("succeeded", "done")


class Outer:
    """
    Hold a process, as a class that groups things does.
    """

    class Inner(Process):
        """
        Be declared inside another class.
        """

        process_name = "flow"
        transitions = [BackgroundTransition("go", sources=["new"], target="done")]


def test_process_declared_inside_a_class_is_found_again(bind: Bind, ticket: Ticket) -> None:
    """
    The dotted name of a class in a class leads back to it.
    """
    bind(Outer.Inner)

    ticket.flow.go()
    run_available()

    assert (message(ticket).outcome, stored(ticket)) == ("succeeded", "done")


def test_object_that_this_code_can_not_read_is_not_taken_for_gone(flow: Flow) -> None:
    """
    A column value the model class refuses says nothing about the row's existence: it counts as a failed attempt.
    """
    typed = Typed.objects.create()
    flow(work(sources=[Status.DRAFT], in_progress_state=None, target=Status.FULFILLED, failed_state=None), model=Typed)
    typed.flow.go()
    Typed.objects.update(state="placed")
    with_alien_state = "UPDATE app_typed SET state = 'alien'"
    flows.execute(with_alien_state)

    run_available()

    row = TransitionMessage.objects.get()
    assert (row.is_completed, row.errors_count) == (False, 1)
    assert "alien" in row.last_error_message


def test_one_row_that_can_not_be_restored_does_not_hold_up_the_others(flow: Flow, diary: Diary) -> None:
    """
    Bad rows of every kind before a good one: the good one runs in the same call.
    """
    tickets = [Ticket.objects.create() for _ in range(4)]
    flow(work(diary.hook("effect")))
    for ticket in tickets:
        ticket.flow.go()
    gone, unknown, corrupt, fine = tickets
    TransitionMessage.objects.filter(instance_id=str(unknown.pk)).update(transition_name="gone")
    TransitionMessage.objects.filter(instance_id=str(corrupt.pk)).update(kwargs={"a": {"$type": "nonsense"}})
    Ticket.objects.filter(pk=gone.pk).delete()

    run_available()

    assert diary.names == ["effect"]
    assert stored(fine) == "done"
    assert [len(messages(ticket)) for ticket in (unknown, corrupt, fine)] == [1, 1, 1]
