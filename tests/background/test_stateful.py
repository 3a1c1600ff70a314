"""
Prove that no order of calls, attempts, deaths, cancels and manual moves parts rows, history, column and effects.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from django_logic import Transition
from django_logic.background import PermanentFailure, Snooze, run_available
from django_logic.background.models import TransitionMessage
from django_logic.exceptions import (
    AlreadyInProgress,
    InvalidTransition,
    TransitionNotAllowed,
    TransitionTemporarilyUnavailable,
)
from tests.app.hooked import Boom, fresh, moves, stored
from tests.app.models import Product, Ticket
from tests.background.flows import Flow, make_due, messages, new_ticket, work

pytestmark = pytest.mark.django_db(transaction=True)

MAX_ERRORS = 2
BOUNDED = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Pulled(BaseException):
    """
    Stand for a process that dies.
    """


#: How the next attempt ends, by name.
ENDS: dict[str, BaseException | None] = {
    "well": None,
    "badly": Boom(),
    "for good": PermanentFailure(),
    "later": Snooze(0),
    "dead": Pulled(),
}


class Script:
    """
    Say how attempts end, and count what they told.
    """

    end: str = "well"
    told: int = 0
    warned: int = 0


def effect(instance: Any, **keywords: Any) -> None:
    """
    Write, then end as the script says.
    """
    Product.objects.create(name=str(instance.pk))
    error = ENDS[Script.end]
    if error is not None:
        raise error


def tell(instance: Any, **keywords: Any) -> None:
    """
    Count a success that was told.
    """
    Script.told += 1


def warn(instance: Any, exception: BaseException, **keywords: Any) -> None:
    """
    Count a failure that was told.
    """
    Script.warned += 1


PROCESS = (
    work(
        effect,
        sources=["new", "done", "failed"],
        max_errors=MAX_ERRORS,
        callbacks=[tell],
        failure_callbacks=[warn],
    ),
    Transition("reset", ["done", "failed"], "new"),
)


class Machine(RuleBasedStateMachine):
    """
    Live through anything with one object, beside a model of what should be.
    """

    @initialize()
    def create(self) -> None:
        """
        Make the object, and the model: its state, whether a row is open, and what is left of it.
        """
        self.ticket = new_ticket()
        Script.told = Script.warned = 0
        self.state = "new"
        self.is_open = False
        self.started = 0
        self.accepted = self.successes = self.failures = 0
        self.chain: list[tuple[str, str]] = []

    def move(self, target: str) -> None:
        """
        Move the model.
        """
        self.chain.append((self.state, target))
        self.state = target

    @rule(wraps=st.sampled_from(["nothing", "commit", "rollback"]), delay=st.sampled_from([0, 3600]))
    def go(self, wraps: str, delay: int) -> None:
        """
        Call the background transition, alone or in a transaction that commits or not.
        """
        is_source = self.state in ("new", "done", "failed", "busy")
        expected: Any = AlreadyInProgress if self.is_open else True if is_source else InvalidTransition
        # An object that is done may be worked on again: "done" is among the sources, so it is no duplicate.
        try:
            if wraps == "nothing":
                given: Any = fresh(self.ticket).flow.go(delay=delay)
            else:
                with transaction.atomic():
                    given = fresh(self.ticket).flow.go(delay=delay)
                    transaction.set_rollback(wraps == "rollback")
        except TransitionNotAllowed as refused:
            given = type(refused)
        assert given == expected
        if given is True and wraps != "rollback":
            self.accepted += 1
            self.is_open, self.started = True, 0
            if self.state != "busy":
                self.move("busy")

    @rule()
    def reset(self) -> None:
        """
        Call the synchronous transition.
        """
        expected: Any = InvalidTransition
        if self.is_open:
            expected = TransitionTemporarilyUnavailable
        elif self.state in ("done", "failed"):
            expected = True
        elif self.state == "new":
            expected = False
        try:
            given: Any = fresh(self.ticket).flow.reset()
        except TransitionNotAllowed as refused:
            given = type(refused)
        assert given == expected
        if given is True:
            self.move("new")

    @rule(state=st.sampled_from(["by hand", "new", "busy"]))
    def mend_by_hand(self, state: str) -> None:
        """
        Move the object past the library.
        """
        Ticket.objects.filter(pk=self.ticket.pk).update(state=state)
        self.state = state

    @rule(end=st.sampled_from(sorted(ENDS)))
    def run(self, end: str) -> None:
        """
        Let everything that is left be due, and run it once.
        """
        Script.end = end
        make_due()
        with suppress(Pulled):
            run_available()
        if not self.is_open:
            return
        is_spent = self.started >= MAX_ERRORS
        if self.state != "busy":
            self.is_open = False
        elif is_spent or end == "for good":
            self.fail()
        elif end == "well":
            self.is_open = False
            self.successes += 1
            self.move("done")
        elif end in ("badly", "dead"):
            self.started += 1
            if end == "badly" and self.started >= MAX_ERRORS:
                self.fail()

    def fail(self) -> None:
        """
        Let the model fail for good.
        """
        self.is_open = False
        self.failures += 1
        self.move("failed")

    @rule()
    def cancel(self) -> None:
        """
        Cancel what is open, once the claim of one that died is over.
        """
        make_due()
        try:
            fresh(self.ticket).flow.cancel_background(reason="stop")
        except TransitionNotAllowed:
            assert not self.is_open
            return
        assert self.is_open
        self.is_open = False
        if self.state == "busy":
            self.failures += 1
            self.move("failed")

    @invariant()
    def database_agrees_with_the_model(self) -> None:
        """
        Compare column, history, rows and effects with the model after every step.
        """
        if not hasattr(self, "ticket"):
            return
        rows = messages(self.ticket, "transition")
        outcomes = [row.outcome for row in rows]
        assert stored(self.ticket) == self.state
        assert moves(self.ticket, "flow") == self.chain
        assert list(self.ticket.flow.history.values_list("sequence", flat=True)) == list(range(1, len(self.chain) + 1))
        assert outcomes.count("") == int(self.is_open)
        assert (len(rows), outcomes.count("succeeded")) == (self.accepted, self.successes)
        assert outcomes.count("failed") + outcomes.count("cancelled") == self.failures
        assert Product.objects.filter(name=str(self.ticket.pk)).count() == self.successes

    def teardown(self) -> None:
        """
        Let everything end well: what was accepted has one outcome, and everybody was told once.
        """
        if not hasattr(self, "ticket"):
            return
        while TransitionMessage.objects.open().exists():
            self.run("well")
        self.database_agrees_with_the_model()
        assert (Script.told, Script.warned) == (self.successes, self.failures)
        assert not TransitionMessage.objects.filter(instance_id=str(self.ticket.pk)).open().exists()


def test_no_order_of_events_parts_rows_history_column_and_effects(flow: Flow) -> None:
    """
    Each accepted call has one outcome, each success one effect and one callback, each failure none and one warning.
    """
    flow(*PROCESS)

    run_state_machine_as_test(Machine, settings=BOUNDED)


@pytest.mark.usefixtures("bound_on_the_server")
def test_no_order_of_events_parts_them_where_the_driver_binds_on_the_server(flow: Flow) -> None:
    """
    The same with every statement of a claim and an attempt prepared.
    """
    flow(*PROCESS)

    run_state_machine_as_test(Machine, settings=BOUNDED)
