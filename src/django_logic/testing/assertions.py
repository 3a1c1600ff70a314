"""
Asserting what a call left behind: states, hooks, rows, history, refusals. Every failure tells the journey.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import models

from django_logic.call import identify
from django_logic.exceptions import Refusal
from django_logic.states import as_text
from django_logic.subject import alias_of
from django_logic.testing.journey import EFFECT_SLOTS, JourneyStep, Step, as_list, differences, journey_text
from django_logic.testing.reading import fresh_state, newest_row, process_of
from django_logic.testing.tracking import hook_names

__all__ = ["Assertions"]


class Assertions:
    """
    Compare what a test has driven with what it should have done.
    """

    process_name: str | None = None
    steps: list[Step]

    def name_of_process(self) -> str:
        """
        Return the name under which the model is bound.
        """
        raise NotImplementedError

    def refuse(self, message: str, instance: models.Model | None = None) -> AssertionError:
        """
        Build the failure of an assertion, with the journey.
        """
        return AssertionError(f"{message}\n{journey_text(self.steps, instance, self.name_of_process())}")

    def last_step(self) -> Step:
        """
        Return the last drive.

        Raises: AssertionError before any.
        """
        if not self.steps:
            raise self.refuse(
                "Nothing was driven yet. Call transition(), background_transition() or retry_transition() first."
            )
        return self.steps[-1]

    def assert_state(self, instance: models.Model, state: Any) -> None:
        """
        Check the state in the database, and bring the instance up to date.
        """
        found = fresh_state(instance, self.name_of_process())
        if found == state:
            instance.refresh_from_db()
            return
        if found is None and not type(instance)._base_manager.using(alias_of(instance)).filter(pk=instance.pk).exists():
            raise self.refuse(f"{instance!r} is gone; expected the state {state!r}.", instance)
        instance.refresh_from_db()
        available = process_of(instance, self.name_of_process()).get_available_actions()
        raise self.refuse(f"The state is {found!r}, expected {state!r}. Available now: {available}.", instance)

    def assert_available(self, instance: models.Model, actions: Iterable[str], user: Any = None) -> None:
        """
        Check that all these actions could run now.
        """
        wanted, found = as_list(actions, "actions"), self._available(instance, user)
        if missing := [name for name in wanted if name not in found]:
            process = process_of(instance, self.name_of_process())
            why = {name: told(process.why_not(name, user=user)) for name in missing}
            raise self.refuse(f"Not available: {why}. Available now: {found}.", instance)

    def assert_not_available(self, instance: models.Model, actions: Iterable[str], user: Any = None) -> None:
        """
        Check that none of these actions could run now.

        Raises: ValueError for an action the process does not have, which would never be available.
        """
        wanted, found = as_list(actions, "actions"), self._available(instance, user)
        known = process_of(instance, self.name_of_process()).tree.by_action
        if unknown := [name for name in wanted if name not in known]:
            raise ValueError(f"The process has no action {unknown}; it has {sorted(known)}.")
        if there := [name for name in wanted if name in found]:
            raise self.refuse(f"Available, and should not be: {there}.", instance)

    def _available(self, instance: models.Model, user: Any) -> list[str]:
        instance.refresh_from_db()
        return process_of(instance, self.name_of_process()).get_available_actions(user)

    def assert_refused(self, instance: models.Model, action: str, code: str, user: Any = None, **keywords: Any) -> None:
        """
        Check that an action would be refused now, and that one of the reasons has this code.
        """
        instance.refresh_from_db()
        reasons = process_of(instance, self.name_of_process()).why_not(action, user=user, **keywords)
        if not reasons:
            raise self.refuse(f"{action} would not be refused; expected {code!r}.", instance)
        if code not in [reason.code for reason in reasons]:
            raise self.refuse(f"{action} is refused for {told(reasons)}; expected {code!r}.", instance)

    def assert_side_effects_ran(self, names: Iterable[str]) -> None:
        """
        Check that these side effects returned in the last drive, whatever else did.
        """
        self._assert_ran(names, *EFFECT_SLOTS)

    def assert_side_effects_not_ran(self, names: Iterable[str]) -> None:
        """
        Check that none of these side effects returned in the last drive.
        """
        ran = self.last_step().ran(*EFFECT_SLOTS)
        if there := [name for name in self._known(names, *EFFECT_SLOTS) if name in ran]:
            raise self.refuse(f"Ran, and should not have: {there}.")

    def assert_callbacks_ran(self, names: Iterable[str]) -> None:
        """
        Check that these callbacks returned in the last drive, whatever else did.
        """
        self._assert_ran(names, "callbacks")

    def assert_failure_callbacks_ran(self, names: Iterable[str]) -> None:
        """
        Check that these failure callbacks returned in the last drive, whatever else did.
        """
        self._assert_ran(names, "failure_callbacks")

    def _assert_ran(self, names: Iterable[str], *slots: str) -> None:
        ran = self.last_step().ran(*slots)
        if missing := [name for name in self._known(names, *slots) if name not in ran]:
            raise self.refuse(f"Did not run: {missing}. Ran: {ran}.")

    def _known(self, names: Iterable[str], *slots: str) -> list[str]:
        wanted = as_list(names, "names")
        known = hook_names(self.driven_process(), *slots)
        if unknown := [name for name in wanted if name not in known]:
            raise ValueError(f"The process has no such hook: {unknown}; it has {sorted(known)}.")
        return wanted

    def driven_process(self) -> Any:
        """
        Return the process of the object that was driven last.
        """
        raise NotImplementedError

    def assert_raised(
        self, kind: type[BaseException] | tuple[type[BaseException], ...] | None = None, *, match: str | None = None
    ) -> Any:
        """
        Check what the last drive let out, and return it; ``match`` is a part of its text.
        """
        error = self.last_step().error
        if error is None:
            raise self.refuse("The last drive let nothing out.")
        if kind is not None and not isinstance(error, kind):
            raise self.refuse(f"The last drive let out {error!r}, expected {kind!r}.")
        if match is not None and match not in str(error):
            raise self.refuse(f"The last drive let out {error!r}, whose text lacks {match!r}.")
        return error

    def assert_not_raised(self) -> None:
        """
        Check that the last drive let nothing out.
        """
        error = self.last_step().error
        if error is not None:
            raise self.refuse(f"The last drive let out {error!r}.")

    def assert_state_trace(self, states: Iterable[Any]) -> None:
        """
        Check every state the last drive wrote, in order, those of what followed included.
        """
        wanted, found = [as_text(one) for one in as_list(states, "states")], self.last_step().states
        if found != wanted:
            raise self.refuse(f"The last drive wrote the states {found}, expected {wanted}.")

    def assert_journey(self, steps: Iterable[JourneyStep | Mapping[str, Any]]) -> None:
        """
        Check all drives of the test, in order.
        """
        wanted = list(steps)
        if len(wanted) != len(self.steps):
            raise self.refuse(f"{len(self.steps)} steps were driven, expected {len(wanted)}.")
        for number, (found, asked) in enumerate(zip(self.steps, wanted, strict=True), 1):
            if wrong := differences(found, asked):
                raise self.refuse(f"Step {number}: {'; '.join(wrong)}.")

    def assert_history(self, instance: models.Model, moves: Iterable[tuple[Any, Any, Any]]) -> None:
        """
        Check all recorded moves of an object, in order: from, to, and who (a user, a name, or None for nobody).

        A user is compared by key and name, so that a namesake is somebody else.
        """
        asked = [(as_text(start), as_text(end), *identify(actor)) for start, end, actor in moves]
        history = process_of(instance, self.name_of_process()).history
        rows = history.values_list("from_state", "to_state", "actor_id", "actor_label")
        has_key = [bool(key) for _start, _end, key, _name in asked]
        found = [
            (start, end, actor_text(key if place < len(asked) and has_key[place] else "", name))
            for place, (start, end, key, name) in enumerate(rows)
        ]
        wanted = [(start, end, actor_text(key, name)) for start, end, key, name in asked]
        if found != wanted:
            raise self.refuse(f"The history is {found}, expected {wanted}.", instance)

    def assert_error_recorded(self, instance: models.Model, contains: str) -> None:
        """
        Check the error of the object's newest row in this process.
        """
        row = self._row(instance)
        if contains not in row.last_error_message:
            raise self.refuse(f"The recorded error is {row.last_error_message!r}, which lacks {contains!r}.", instance)

    def assert_error_count(self, instance: models.Model, count: int) -> None:
        """
        Check how often the object's newest row in this process has failed.
        """
        row = self._row(instance)
        if row.errors_count != count:
            raise self.refuse(f"{row.errors_count} errors were counted, expected {count}.", instance)

    def assert_transition_owner(
        self, instance: models.Model, dotted: str, *, transition_name: str | None = None
    ) -> None:
        """
        Check which process class declares the transition of the object's newest row.
        """
        row = self._row(instance)
        if transition_name is not None and row.transition_name != transition_name:
            raise self.refuse(f"The newest row is of {row.transition_name!r}, expected {transition_name!r}.", instance)
        if row.owning_process_class != dotted:
            raise self.refuse(
                f"{row.transition_name} is declared by {row.owning_process_class}, expected {dotted}.", instance
            )

    def _row(self, instance: models.Model) -> Any:
        row = newest_row(instance, self.name_of_process())
        if row is None:
            raise self.refuse(f"{instance!r} has no row of background work in {self.name_of_process()!r}.", instance)
        return row


def told(reasons: Iterable[Refusal]) -> list[str]:
    """
    Return refusals as a failure tells them.
    """
    return [f"{reason.code}: {reason.message}" for reason in reasons]


def actor_text(key: str, name: str) -> str:
    """
    Return who moved an object as a failure tells it.
    """
    return f"{name} (user {key})" if key else name
