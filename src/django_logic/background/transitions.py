"""
Declarations whose work is a row that a worker claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Unpack

from django.core.exceptions import ImproperlyConfigured

from django_logic import conf, numbers
from django_logic.background.retry import Backoff
from django_logic.states import State
from django_logic.transitions import LOCKS_OF_A_MOVE, Slots, Transition, read_state

__all__ = ["ActionSlots", "BackgroundAction", "BackgroundSlots", "BackgroundTransition"]

PERFORMER = "django_logic.background.enqueue.performer"
#: What a small integer column and PostgreSQL's smallint hold.
SMALLEST, LARGEST = -32_768, 32_767


class ActionSlots(Slots, total=False):
    """
    List the keywords every background declaration takes.
    """

    queue: str | None
    timeout: float | None
    no_retry_on: Iterable[type[BaseException]]
    max_errors: int | None
    retry: Backoff | None
    priority: int
    atomic: bool


class BackgroundSlots(ActionSlots, total=False):
    """
    List the keywords a background transition takes.
    """

    in_progress_state: State


class BackgroundDeclaration(Transition):
    """
    Hold what background transitions and actions have in common.
    """

    is_background = True
    performer = PERFORMER
    own_slots: ClassVar[tuple[str, ...]] = tuple(ActionSlots.__annotations__)

    queue: str | None
    timeout: float | None
    no_retry_on: tuple[type[BaseException], ...]
    max_errors: int | None
    retry: Backoff | None
    priority: int
    atomic: bool

    def __init__(self, action_name: str, sources: Any, target: Any, slots: dict[str, Any]) -> None:
        own = {name: slots.pop(name) for name in tuple(slots) if name in OWN_SLOTS}
        super().__init__(action_name, sources, target, **slots)
        where = f"django_logic.background.{type(self).__name__}({action_name!r})"
        for name, value in read_own_slots(where, own).items():
            object.__setattr__(self, name, value)
        if self.in_progress_state is not None and self.in_progress_state == self.failed_state:
            raise ImproperlyConfigured(
                f"{where}: failed_state and in_progress_state are both {self.failed_state!r}, so nobody could tell work"
                " that runs from work that failed. Give them different states."
            )
        if not self.is_action and self.in_progress_state is not None and self.in_progress_state == self.target:
            raise ImproperlyConfigured(
                f"{where}: in_progress_state and target are both {self.target!r}, so work that runs would look done."
                " Give them different states."
            )

    @property
    def queue_name(self) -> str:
        """
        Return the queue its rows wait in.
        """
        return self.queue if self.queue is not None else conf.default_queue()

    @property
    def runs_under_lock(self) -> bool:
        """
        Tell whether anything but the row and the busy state has to happen in the call.
        """
        return bool(self.conditions or self.permissions)


class BackgroundTransition(BackgroundDeclaration):
    """
    Declare a move whose side effects run on a worker.

    The call writes ``in_progress_state`` and one row in one transaction and returns. ``timeout`` is in seconds;
    ``max_errors`` attempts may fail, each followed by the pause of ``retry`` or of the settings; smaller ``priority``
    comes first.
    Source: docs/reference/background.md

    Example::

        BackgroundTransition("fulfil", sources=["approved"], target="fulfilled", in_progress_state="fulfilling",
                             failed_state="fulfilment_failed", side_effects=[book_courier])
    """

    def __init__(
        self,
        action_name: str,
        sources: Iterable[Any] | Literal["*"],
        target: Any,
        **slots: Unpack[BackgroundSlots],
    ) -> None:
        super().__init__(action_name, sources, target, dict(slots))


class BackgroundAction(BackgroundDeclaration):
    """
    Declare background work that changes no state when it succeeds.

    Shape: as `BackgroundTransition`, without a target and ``in_progress_state``.
    """

    is_action = True
    lock_kinds = LOCKS_OF_A_MOVE

    def __init__(self, action_name: str, sources: Iterable[Any] | Literal["*"], **slots: Unpack[ActionSlots]) -> None:
        if "in_progress_state" in slots:
            raise ImproperlyConfigured(
                f"django_logic.background.BackgroundAction({action_name!r}): an action changes no state, so it has no"
                " in_progress_state. Remove it, or declare a BackgroundTransition."
            )
        super().__init__(action_name, sources, None, dict(slots))


OWN_SLOTS = frozenset({*ActionSlots.__annotations__, "in_progress_state"}) - set(Slots.__annotations__)


def read_own_slots(where: str, slots: dict[str, Any]) -> dict[str, Any]:
    """
    Return the slots of background declarations with their values or defaults; refuse what can't be right.
    """
    atomic = slots.get("atomic", True)
    if atomic is not True:
        raise ImproperlyConfigured(
            f"{where}.atomic must be True in this release; found {atomic!r}. Split long work into several transitions:"
            " see docs/how-to/long-jobs.md."
        )
    retry = slots.get("retry")
    if retry is not None and not isinstance(retry, Backoff):
        raise ImproperlyConfigured(f"{where}.retry must be a Backoff; found {retry!r}. Write retry=Backoff(first=30).")
    return {
        "in_progress_state": read_state(f"{where}.in_progress_state", slots.get("in_progress_state")),
        "queue": read_queue(where, slots.get("queue")),
        "timeout": read_timeout(where, slots.get("timeout")),
        "no_retry_on": read_exceptions(where, slots.get("no_retry_on", ())),
        "max_errors": read_whole(where, "max_errors", slots.get("max_errors"), 1, LARGEST),
        "retry": retry,
        "priority": read_whole(where, "priority", slots.get("priority", 0), SMALLEST, LARGEST),
        "atomic": True,
    }


def read_queue(where: str, queue: Any) -> str | None:
    """
    Return a queue's name; refuse what no ``--queues`` could name.
    """
    if queue is None:
        return None
    if not isinstance(queue, str) or not queue.strip():
        raise ImproperlyConfigured(f"{where}.queue must be a non-empty text; found {queue!r}.")
    if conf.queue_name(queue):
        raise ImproperlyConfigured(
            f"{where}.queue: no worker could be told to serve {queue!r}. A name has no comma, no blank at its ends, no"
            f" control character and at most {conf.LONGEST_QUEUE} characters."
        )
    return str(queue)


def read_timeout(where: str, timeout: Any) -> float | None:
    """
    Return a time limit in seconds.
    """
    if timeout is None:
        return None
    if numbers.duration(above=0)(timeout):
        raise ImproperlyConfigured(f"{where}.timeout must be a number of seconds above 0; found {timeout!r}.")
    return float(timeout)


def read_exceptions(where: str, kinds: Any) -> tuple[type[BaseException], ...]:
    """
    Return exception classes; refuse a lone one, which would be read member by member.
    """
    if isinstance(kinds, (type, str, bytes)) or not isinstance(kinds, Iterable):
        raise ImproperlyConfigured(
            f"{where}.no_retry_on must be a list of exception classes; found {kinds!r}. Put it in brackets."
        )
    listed = tuple(kinds)
    for kind in listed:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ImproperlyConfigured(f"{where}.no_retry_on must hold exception classes; found {kind!r}.")
    return listed


def read_whole(where: str, name: str, value: Any, least: int, most: int) -> int | None:
    """
    Return a whole number within bounds.
    """
    if value is None and name == "max_errors":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ImproperlyConfigured(f"{where}.{name} must be a whole number from {least} to {most}; found {value!r}.")
    return value
