"""
Prove that no sequence of calls, legal or not, on fresh or stale copies, parts history, column and memory.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_logic import TransitionConstraint
from django_logic.exceptions import InvalidTransition, TransitionNotAllowed, UnknownAction
from tests.app.hooked import fresh
from tests.app.models import Sale, Voyage

pytestmark = pytest.mark.django_db(transaction=True)

COPIES = 3
BOUNDED = settings(
    max_examples=15,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Expected:
    """
    Say what the table promises: the model the library is compared with.
    """

    def __init__(self, table: dict[Any, Any], state: str) -> None:
        self.edges = {(str(start), str(end)) for start, ends in table.items() for end in ends}
        self.states = sorted({str(start) for start in table})
        self.state = state
        self.chain: list[tuple[str, str]] = []

    def move(self, target: str) -> Any:
        """
        Return what a call for this target gives now, and make its move.
        """
        if (self.state, target) in self.edges:
            self.chain.append((self.state, target))
            self.state = target
            return True
        return False if self.state == target else InvalidTransition


class Machine(RuleBasedStateMachine):
    """
    Call one object in every way there is, through copies that remember what they like.
    """

    model: Any = Sale

    @initialize()
    def create(self) -> None:
        """
        Make the object and its copies.
        """
        made = self.model.objects.create()
        self.expected = Expected(self.model.TRANSITIONS, str(made.status))
        self.copies = [fresh(made) for _ in range(COPIES)]
        self.last: Any = self.copies[0]

    def call(self, copy: int, expected: Any, work: Any) -> None:
        """
        Make one call and compare what it gives.
        """
        self.last = self.copies[copy]
        try:
            given = work(self.last)
        except TransitionNotAllowed as refused:
            given = type(refused)
        assert given == expected

    @rule(data=st.data(), copy=st.integers(0, COPIES - 1), wraps=st.sampled_from(["nothing", "commit", "rollback"]))
    def by_target(self, data: st.DataObject, copy: int, wraps: str) -> None:
        """
        Ask for a state, known or not, alone or in a transaction that commits or not.
        """
        target = data.draw(st.sampled_from([*self.expected.states, "nonsense"]))
        before = (self.expected.state, list(self.expected.chain))
        expected = self.expected.move(target)
        if wraps == "nothing":
            self.call(copy, expected, lambda found: found.transition_to(target, actor="machine"))
            return
        with transaction.atomic():
            self.call(copy, expected, lambda found: found.transition_to(target, actor="machine"))
            transaction.set_rollback(wraps == "rollback")
        if wraps == "rollback":
            self.expected.state, self.expected.chain = before
            self.last.refresh_from_db()

    @rule(data=st.data(), copy=st.integers(0, COPIES - 1))
    def by_action(self, data: st.DataObject, copy: int) -> None:
        """
        Run an action of the compiled table.
        """
        targets = sorted({end for _, end in self.expected.edges})
        target = data.draw(st.sampled_from(targets))
        self.call(copy, self.expected.move(target), lambda found: getattr(found.process, f"to_{target}")())

    @rule(copy=st.integers(0, COPIES - 1))
    def by_unknown_action(self, copy: int) -> None:
        """
        Ask for an action that no table has; it is unknown before anything is read.
        """
        self.call(copy, UnknownAction, lambda found: found.process.to_nowhere())
        self.last.refresh_from_db()

    @rule(data=st.data(), copy=st.integers(0, COPIES - 1), behind=st.integers(-1, 2))
    def by_version(self, data: st.DataObject, copy: int, behind: int) -> None:
        """
        Ask for a state as an editor who saw the present version, or another one.
        """
        target = data.draw(st.sampled_from(self.expected.states))
        version = len(self.expected.chain) - behind
        expected = TransitionNotAllowed if behind else self.expected.move(target)
        self.call(copy, expected, lambda found: found.transition_to(target, expected_version=version))

    @rule(data=st.data(), copy=st.integers(0, COPIES - 1))
    def pretend(self, data: st.DataObject, copy: int) -> None:
        """
        Let a copy remember any state at all; what it remembers must decide nothing.
        """
        self.copies[copy].status = data.draw(st.sampled_from([*self.expected.states, "nonsense"]))
        self.last = self.copies[(copy + 1) % COPIES]
        self.last.refresh_from_db()

    @precondition(lambda self: any(isinstance(c, TransitionConstraint) for c in self.model._meta.constraints))
    @rule(data=st.data(), raw=st.booleans())
    def by_hand(self, data: st.DataObject, raw: bool) -> None:
        """
        Write a state the table forbids by update() or raw SQL: the database refuses.
        """
        table, expected = self.model._meta.db_table, self.expected
        legal = {end for start, end in expected.edges if start == expected.state} | {expected.state}
        target = data.draw(st.sampled_from([state for state in [*expected.states, "nonsense"] if state not in legal]))
        if raw:
            with connection.cursor() as cursor, pytest.raises(IntegrityError):
                cursor.execute(f"UPDATE {table} SET status = %s WHERE id = %s", [target, self.last.pk])
        else:
            with pytest.raises(IntegrityError):
                self.model.objects.filter(pk=self.last.pk).update(status=target)

    @invariant()
    def history_column_and_memory_agree(self) -> None:
        """
        The chain is what the model says, its end is the column, and the copy used last knows it.
        """
        if not hasattr(self, "expected"):
            return
        rows = list(self.last.history.values_list("from_state", "to_state", "sequence"))
        assert [row[:2] for row in rows] == self.expected.chain
        assert [row[2] for row in rows] == list(range(1, len(rows) + 1))
        assert self.last.status == fresh(self.last).status == self.expected.state
        assert self.last.process.version == len(rows)


class VoyageMachine(Machine):
    """
    The same with cycles, a state that follows itself, and a database that knows the table.
    """

    model = Voyage


@pytest.mark.parametrize("machine", [Machine, VoyageMachine])
def test_history_column_and_memory_never_part(machine: type[Machine]) -> None:
    """
    After every step of random legal and illegal calls the history chain equals the column and the copy in memory.
    """
    run_state_machine_as_test(machine, settings=BOUNDED)
