"""
What a test has driven so far, step by step, and how a failure tells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from django_logic.testing.reading import row_text

__all__ = ["HookRun", "JourneyStep", "Step", "journey_text"]

EFFECT_SLOTS = ("prepare", "side_effects")


@dataclass(frozen=True, slots=True)
class HookRun:
    """
    Say that a hook was called, and what it raised instead of returning.
    """

    slot: str
    name: str
    error: BaseException | None = None


@dataclass(slots=True, kw_only=True)
class Step:
    """
    Hold what one drive did: the states it met and wrote, the hooks that ran, what it let out.
    """

    action: str
    kind: str
    before: Any
    after: Any = None
    states: list[str] = field(default_factory=list)
    hooks: list[HookRun] = field(default_factory=list)
    error: BaseException | None = None

    def ran(self, *slots: str) -> list[str]:
        """
        Return the names of the hooks of these slots that returned, in order.
        """
        return [run.name for run in self.hooks if run.slot in slots and run.error is None]

    def __str__(self) -> str:
        parts = [f"{self.kind} {self.action}: {self.before!r} -> {self.after!r}"]
        if len(self.states) > 1:
            parts.append("through " + " -> ".join(map(repr, self.states)))
        for title, slots in (
            ("side effects", EFFECT_SLOTS),
            ("callbacks", ("callbacks",)),
            ("failure callbacks", ("failure_callbacks",)),
        ):
            if ran := self.ran(*slots):
                parts.append(f"{title} {', '.join(ran)}")
        parts += [f"{run.name} raised {run.error!r}" for run in self.hooks if run.error is not None]
        if self.error is not None:
            parts.append(f"let out {self.error!r}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class JourneyStep:
    """
    Describe one expected step of `ProcessScenario.assert_journey`; what is left None is not compared.

    Shape: states as the model holds them; lists of hook names, complete and in order; ``failed`` tells whether the step
    let an exception out or a side effect raised.
    """

    action: str
    before: Any = None
    after: Any = None
    side_effects: Iterable[str] | None = None
    callbacks: Iterable[str] | None = None
    failed: bool | None = None


def differences(step: Step, wanted: JourneyStep | Mapping[str, Any]) -> list[str]:
    """
    Say where a step is not as wanted; empty when it is.

    Raises: TypeError for a key no step has, or a text where a list belongs.
    """
    asked = wanted_of(wanted)
    found = {
        "action": step.action,
        "before": step.before,
        "after": step.after,
        "side_effects": step.ran(*EFFECT_SLOTS),
        "callbacks": step.ran("callbacks"),
        "failed": step.error is not None
        or any(run.error is not None for run in step.hooks if run.slot in EFFECT_SLOTS),
    }
    return [f"{name} is {found[name]!r}, expected {value!r}" for name, value in asked.items() if found[name] != value]


def wanted_of(wanted: JourneyStep | Mapping[str, Any]) -> dict[str, Any]:
    """
    Return what is asked of a step, lists as lists.
    """
    names = {entry.name for entry in fields(JourneyStep)}
    if isinstance(wanted, JourneyStep):
        asked = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    else:
        asked = dict(wanted)
        if unknown := set(asked) - names:
            raise TypeError(f"A journey's step has no {sorted(unknown)}; it has {sorted(names)}.")
    for name in ("side_effects", "callbacks"):
        if name in asked:
            asked[name] = as_list(asked[name], name)
    return asked


def as_list(names: Iterable[str], what: str) -> list[str]:
    """
    Return names as a list; a bare text would be read letter by letter.

    Raises: TypeError.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise TypeError(f"{what} takes a list of names; found {names!r}. Put it in brackets.")
    return list(names)


def journey_text(steps: Iterable[Step], instance: Any = None, process_name: str = "") -> str:
    """
    Tell the steps of a test, numbered, and the newest row of an object.
    """
    lines = [f"  {number}. {step}" for number, step in enumerate(steps, 1)] or ["  nothing was driven"]
    if instance is not None:
        lines.append(f"  {row_text(instance, process_name)}")
    return "The journey so far:\n" + "\n".join(lines)
