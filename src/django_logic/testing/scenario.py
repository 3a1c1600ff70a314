"""
A test that reads like the business process: objects, calls, and what they left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.db import models
from django.test import TransactionTestCase
from django.utils.module_loading import import_string

from django_logic import Process, TransitionsMixin
from django_logic.subject import alias_of
from django_logic.testing import snapshots
from django_logic.testing.driving import drive
from django_logic.testing.journey import Step, journey_text
from django_logic.testing.outcomes import Outcomes
from django_logic.testing.placing import place
from django_logic.testing.reading import fresh_state, newest_row, process_of
from django_logic.testing.tracking import Injection

__all__ = ["ProcessScenario", "Scenario", "ScenarioMixin"]

RUNNER = "django_logic.background.runner"
Raises = type[BaseException] | tuple[type[BaseException], ...] | bool | None
FailWith = BaseException | type[BaseException] | Callable[[], BaseException] | None


class ScenarioMixin(Outcomes):
    """
    Drive objects through a process, inline, and assert what came of it.

    For a test class of your own: `ProcessScenario` on a database that commits, or
    ``class MyTest(ScenarioMixin, TestCase)`` within a transaction. Source: docs/reference/testing.md
    """

    process_class: type[Process]
    model: type[models.Model]
    state_field: str = "status"
    process_name: str | None = None

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.steps: list[Step] = []
        self._driven: models.Model | None = None

    def name_of_process(self) -> str:
        """
        Return the name under which the model is bound: ``process_name``, else the process's own.
        """
        return self.process_name or self.process_class.process_name

    def driven_process(self) -> Process:
        """
        Return the process of the object that was driven last.
        """
        if self._driven is None:
            self.last_step()
        return process_of(self._driven, self.name_of_process())  # type: ignore[arg-type]

    def create_instance(self, **values: Any) -> Any:
        """
        Save a new object.
        """
        return self.model._default_manager.create(**values)

    def instance_in(self, state: Any, **values: Any) -> Any:
        """
        Save a new object and put it into a state without a move: no guard, no hook, no history, no constraint.
        """
        instance = self.create_instance(**values)
        place(instance, self.name_of_process(), state)
        return instance

    def transition(
        self,
        instance: models.Model,
        action: str,
        *,
        fail_side_effect: str | None = None,
        fail_with: FailWith = None,
        expect_raises: Raises = None,
        **keywords: Any,
    ) -> Any:
        """
        Call an action as a view does, and run what follows it; return its answer.

        ``fail_side_effect`` names a side effect that raises ``fail_with`` instead of running. ``expect_raises``: an
        exception class or several, one of which must come out; False: none may; None: the injected one may, any other
        fails the test. Raises: ValueError for an unknown side effect, AssertionError for an unknown action and for an
        injected failure that never fired.
        """
        self._check_action(instance, action, wants_background=False)
        return self._drive(instance, action, "call", fail_side_effect, fail_with, expect_raises, keywords)

    def transition_to(
        self,
        instance: models.Model,
        target: Any,
        *,
        fail_side_effect: str | None = None,
        fail_with: FailWith = None,
        expect_raises: Raises = None,
        **keywords: Any,
    ) -> Any:
        """
        Move an object to a state by whichever edge leads there, as `transition` does by its action.

        A model with a table is called by its own ``transition_to``, as its application does.
        """
        injection = injected(fail_side_effect, fail_with)
        name = self.name_of_process()
        has_table = isinstance(instance, TransitionsMixin) and name == Process.process_name
        owner: Any = instance if has_table else process_of(instance, name)
        return self._complete(
            instance, f"to {target}", "call", lambda: owner.transition_to(target, **keywords), injection, expect_raises
        )

    def background_transition(
        self,
        instance: models.Model,
        action: str,
        *,
        fail_side_effect: str | None = None,
        fail_with: FailWith = None,
        expect_raises: Raises = None,
        **keywords: Any,
    ) -> Any:
        """
        Call a background action and run its first attempt at once, as a worker would.

        As `transition`; what fails the attempt comes out here, where in production nobody waits for it.
        """
        self._check_action(instance, action, wants_background=True)
        return self._drive(instance, action, "background call", fail_side_effect, fail_with, expect_raises, keywords)

    def retry_transition(
        self,
        instance: models.Model,
        *,
        fail_side_effect: str | None = None,
        fail_with: FailWith = None,
        expect_raises: Raises = None,
    ) -> None:
        """
        Run the next attempt of the object's open row now, whatever its pause.

        Raises: AssertionError when no row is open. As `background_transition` otherwise.
        """
        row = newest_row(instance, self.name_of_process())
        if row is None or row.is_completed:
            raise self.refuse(f"{instance!r} has no open row to try again.", instance)
        alias = alias_of(instance)

        def work() -> None:
            outcome = import_string(f"{RUNNER}.run_row")(alias, row.pk, row.transition_id)
            if outcome is None:
                raise self.refuse(
                    "Somebody holds the open row, or has just claimed it. advance() ends a claim.", instance
                )
            error: BaseException | None = import_string(f"{RUNNER}.failure_of")(outcome)
            if error is not None:
                raise error

        injection = injected(fail_side_effect, fail_with)
        self._complete(instance, row.transition_name, "retry", work, injection, expect_raises)

    def _drive(
        self,
        instance: models.Model,
        action: str,
        kind: str,
        fail_side_effect: str | None,
        fail_with: FailWith,
        expect_raises: Raises,
        keywords: Mapping[str, Any],
    ) -> Any:
        injection = injected(fail_side_effect, fail_with)
        process = process_of(instance, self.name_of_process())
        call = getattr(process, action)
        return self._complete(instance, action, kind, lambda: call(**keywords), injection, expect_raises)

    def _complete(
        self,
        instance: models.Model,
        action: str,
        kind: str,
        work: Callable[[], Any],
        injection: Injection | None,
        expect_raises: Raises,
    ) -> Any:
        name = self.name_of_process()
        step = Step(action=action, kind=kind, before=fresh_state(instance, name))
        answer = drive(instance, name, step, work, injection)
        self.steps.append(step)
        self._driven = instance
        self._judge(instance, step, injection, expect_raises)
        return answer

    def _judge(self, instance: models.Model, step: Step, injection: Injection | None, expect_raises: Raises) -> None:
        error = step.error
        if injection is not None and injection.misuse is not None:
            raise injection.misuse
        if injection is not None and injection.raised is None:
            raise self.refuse(f"The side effect {injection.name!r} was to fail and never ran.", instance) from error
        if expect_raises not in (None, False):
            kinds: Any = expect_raises
            if not isinstance(error, kinds):
                raise self.refuse(f"Expected {expect_raises!r} to come out; found {error!r}.", instance) from error
            return
        if error is None or (expect_raises is None and injection is not None and error is injection.raised):
            return
        error.add_note(journey_text(self.steps, instance, self.name_of_process()))
        raise error

    def _check_action(self, instance: models.Model, action: str, *, wants_background: bool) -> None:
        declared = process_of(instance, self.name_of_process()).tree.by_action
        if action not in declared:
            raise self.refuse(f"The process has no action {action!r}; it has {sorted(declared)}.", instance)
        kinds = {candidate.transition.is_background for candidate in declared[action]}
        if wants_background not in kinds:
            method = "transition()" if wants_background else "background_transition()"
            what = "no background declaration" if wants_background else "background declarations only"
            raise self.refuse(f"{action!r} has {what}. Call {method}.", instance)

    def snapshot(self, instance: models.Model) -> dict[str, Any]:
        """
        Describe an object and its newest row as plain data: `django_logic.testing.snapshot`.
        """
        return snapshots.snapshot(instance, state_field=self.state_field, process_name=self.name_of_process())

    def from_snapshot(self, data: Mapping[str, Any] | str | Path) -> Any:
        """
        Put a described object and its row back: `django_logic.testing.from_snapshot`.
        """
        return snapshots.from_snapshot(data, model=self.model)


def injected(fail_side_effect: str | None, fail_with: FailWith) -> Injection | None:
    """
    Return the failure that a drive is asked for, None for none.

    Raises: TypeError for an exception that no side effect is named for.
    """
    if fail_side_effect is not None:
        return Injection(fail_side_effect, fail_with)
    if fail_with is not None:
        raise TypeError("fail_with= says what fail_side_effect= raises. Name the side effect, too.")
    return None


class ProcessScenario(ScenarioMixin, TransactionTestCase):
    """
    Test a process on a database that commits, with background work, retries and callbacks inline.

    Example::

        class TestOrderFulfilment(ProcessScenario):
            process_class = OrderProcess
            model = Order
            state_field = "status"

            def test_happy_path(self):
                order = self.create_instance(status="approved")
                self.background_transition(order, "fulfil")
                self.assert_state(order, "fulfilled")
                self.assert_side_effects_ran(["book_courier"])
    """


class Scenario(ScenarioMixin):
    """
    Drive a process from a function; the pytest fixture ``process_scenario`` makes them.
    """

    def __init__(
        self,
        process_class: type[Process],
        model: type[models.Model],
        *,
        state_field: str = "status",
        process_name: str | None = None,
    ) -> None:
        super().__init__()
        self.process_class, self.model = process_class, model
        self.state_field, self.process_name = state_field, process_name
