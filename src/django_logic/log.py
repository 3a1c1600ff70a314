"""
The log: the one place where what the engine tells becomes a line.

Logger ``django-logic.transition``; every record carries the ids of its call in ``extra``, never its keywords.
"""

from __future__ import annotations

import logging
from typing import Any

from django_logic import signals
from django_logic.call import Call
from django_logic.exceptions import TransitionNotAllowed, TransitionTemporarilyUnavailable
from django_logic.extension import observe

__all__ = ["connect"]

logger = logging.getLogger("django-logic.transition")


def connect() -> None:
    """
    Listen to the engine.
    """
    observe(signals.transition_accepted, log_accepted)
    observe(signals.transition_finished, log_finished)
    observe(signals.transition_failed, log_failed)
    observe(signals.transition_refused, log_refused)


def ids(call: Call) -> dict[str, str]:
    """
    Return the ids of a call for a record.
    """
    return {"transition_id": str(call.transition_id), "root_id": str(call.root_id)}


def log_accepted(call: Call, move: Any) -> None:
    """
    Write that a background call saved its row.
    """
    if logger.isEnabledFor(logging.INFO):
        went = f"{move.expected} -> {move.new}" if move is not None else "state unchanged"
        logger.info("%s of %s: accepted for a worker, %s", call.label, call.subject, went, extra=ids(call))


def log_finished(call: Call, moved: bool, move: Any) -> None:
    """
    Write how a call ended well.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    if not moved:
        logger.info("%s of %s: duplicate, nothing to do", call.label, call.subject, extra=ids(call))
    elif move is None:
        logger.info("%s of %s: done", call.label, call.subject, extra=ids(call))
    else:
        logger.info("%s of %s: %s -> %s", call.label, call.subject, move.expected, move.new, extra=ids(call))


def log_failed(call: Call, exception: Exception, move: Any) -> None:
    """
    Write that work failed, and where the object went.
    """
    went = f"now {move.new}" if move is not None else "state unchanged"
    logger.error("%s of %s failed, %s: %r", call.label, call.subject, went, exception, extra=ids(call))


def log_refused(call: Call, exception: TransitionNotAllowed) -> None:
    """
    Write a refusal: a busy object is worth a warning, everything else is daily life.
    """
    is_busy = isinstance(exception, TransitionTemporarilyUnavailable)
    logger.log(logging.WARNING if is_busy else logging.INFO, "%s", exception, extra=ids(call))
