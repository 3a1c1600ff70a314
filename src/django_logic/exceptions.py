"""
Every public exception, and the values that explain a refusal.

A refusal is data first: codes for machines, messages for people. Nothing here decides anything;
the judge, the locks and the engine build these values where a check fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.core.exceptions import PermissionDenied
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

__all__ = [
    "AlreadyInProgress",
    "DjangoLogicException",
    "InvalidTransition",
    "Refusal",
    "RefusalReason",
    "TransitionForbidden",
    "TransitionNotAllowed",
    "TransitionTemporarilyUnavailable",
    "UnknownAction",
    "refusal_error",
]

Text = str | Promise


class RefusalReason(StrEnum):
    """
    Name the closed set of codes a refusal may carry.
    """

    PERMISSION = "permission"
    CONDITION = "condition"
    SOURCE_STATE = "source_state"
    UNKNOWN_ACTION = "unknown_action"
    LOCKED = "locked"
    BACKGROUND_IN_FLIGHT = "background_in_flight"
    BACKGROUND_STRANDED = "background_stranded"
    AMBIGUOUS = "ambiguous"
    STALE_VERSION = "stale_version"
    MOVED = "moved"
    DUPLICATE = "duplicate"


#: What a person reads when neither hook, transition nor process has words of its own.
BUILT_IN_MESSAGES: Mapping[str, Text] = {
    "permission": _("You may not do this."),
    "condition": _("A condition for this is not met."),
    "source_state": _("This is not possible in the present state."),
    "unknown_action": _("This action does not exist."),
    "locked": _("Somebody else is working on this right now. Try again shortly."),
    "background_in_flight": _("Work on this is still running. Try again shortly."),
    "background_stranded": _("Earlier work on this has stopped and needs an operator."),
    "ambiguous": _("More than one way leads on from here."),
    "stale_version": _("This has changed since you loaded it. Reload and try again."),
    "moved": _("This changed while the work was running. Reload and try again."),
    "duplicate": _("This has been done already."),
}

HTTP_STATUS: Mapping[str, int] = {
    "permission": 403,
    "condition": 422,
    "source_state": 409,
    "unknown_action": 404,
    "locked": 503,
    "background_in_flight": 503,
    "background_stranded": 409,
    "ambiguous": 409,
    "stale_version": 412,
    "moved": 409,
    "duplicate": 409,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """
    State one reason why a call may not run: a code, a message for people, its parameters.
    """

    code: str
    message: str
    params: Mapping[str, Any] = field(default_factory=dict)


class DjangoLogicException(Exception):
    """
    Base of everything this library raises on purpose.
    """


class TransitionNotAllowed(DjangoLogicException):
    """
    A call was refused; ``reasons`` says why.

    ``available_actions`` is computed when it is read, so that refusing one action runs no guard of another.
    """

    default_status = 409

    def __init__(
        self,
        message: str = "",
        *,
        action: str | None = None,
        target: Any = None,
        current_state: Any = None,
        reasons: tuple[Refusal, ...] = (),
        list_actions: Callable[[], list[str]] | None = None,
    ) -> None:
        super().__init__(message or str(self.__doc__ or "").strip().splitlines()[0])
        self.action = action
        self.target = target
        self.current_state = current_state
        self.reasons = reasons
        self._list_actions = list_actions

    def __reduce__(self) -> tuple[Any, ...]:
        # The listing closes over a live instance: a refusal that crosses a process boundary leaves it behind.
        return type(self), self.args, {**self.__dict__, "_list_actions": None}

    @property
    def reason(self) -> str | None:
        """
        Return the code of the first reason, None for a refusal raised by hand.
        """
        if not self.reasons:
            return None
        code = self.reasons[0].code
        return RefusalReason(code) if code in HTTP_STATUS else code

    @property
    def user_message(self) -> str:
        """
        Return what a person may read, in the active language.
        """
        return self.reasons[0].message if self.reasons else str(BUILT_IN_MESSAGES["source_state"])

    @property
    def http_status(self) -> int:
        """
        Return the status an HTTP answer to this refusal carries.
        """
        return HTTP_STATUS.get(self.reasons[0].code, self.default_status) if self.reasons else self.default_status

    @property
    def available_actions(self) -> list[str] | None:
        """
        List what would be possible instead, None where it cannot be told.
        """
        if self._list_actions is None:
            return None
        try:
            return self._list_actions()
        except Exception:  # a hint must never replace the refusal it decorates
            return None


class InvalidTransition(TransitionNotAllowed):
    """
    The move from the present state is not declared.
    """


class UnknownAction(TransitionNotAllowed, AttributeError):
    """
    No transition or action has this name.
    """

    default_status = 404


class TransitionForbidden(TransitionNotAllowed, PermissionDenied):
    """
    The user may not run this action.
    """

    default_status = 403


class TransitionTemporarilyUnavailable(TransitionNotAllowed):
    """
    The object is busy; the same call may succeed shortly.
    """

    default_status = 503


class AlreadyInProgress(TransitionTemporarilyUnavailable):
    """
    Background work of this process is already open for the object.
    """

    @property
    def http_status(self) -> int:
        """
        Return 409: the work asked for exists already, so asking again is a conflict and not a matter of waiting.
        """
        return 409


#: Which exception speaks for a code; every other code is a plain TransitionNotAllowed.
CLASS_BY_CODE: Mapping[str, type[TransitionNotAllowed]] = {
    "permission": TransitionForbidden,
    "source_state": InvalidTransition,
    "unknown_action": UnknownAction,
    "locked": TransitionTemporarilyUnavailable,
    "background_in_flight": TransitionTemporarilyUnavailable,
}


def refusal_error(
    message: str,
    reasons: tuple[Refusal, ...],
    *,
    action: str | None = None,
    target: Any = None,
    current_state: Any = None,
    list_actions: Callable[[], list[str]] | None = None,
) -> TransitionNotAllowed:
    """
    Build the exception that speaks for the first of these reasons.
    """
    kind = CLASS_BY_CODE.get(reasons[0].code, TransitionNotAllowed)
    return kind(
        message,
        action=action,
        target=target,
        current_state=current_state,
        reasons=reasons,
        list_actions=list_actions,
    )
