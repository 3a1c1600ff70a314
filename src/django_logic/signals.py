"""
What the engine tells the rest of the world.

Receivers log, count and audit; they never decide. Each signal is sent with ``sender`` = the model class
and ``call`` = the `django_logic.call.Call`. A receiver's exception is logged and swallowed.
"""

from __future__ import annotations

from django.dispatch import Signal

__all__ = [
    "transition_accepted",
    "transition_failed",
    "transition_finished",
    "transition_refused",
    "transition_started",
]

#: Sent before anything is locked. Adds: nothing.
transition_started = Signal(use_caching=True)

#: Sent when the call ended well, before its callbacks; inside the caller's transaction if there is one.
#: Adds: ``moved`` (False for a duplicate), ``move`` (None for a duplicate or an action).
transition_finished = Signal(use_caching=True)

#: Sent instead when a background call saved its row; the worker's attempt sends how it ended. Adds: ``move`` (to the
#: busy state, or None).
transition_accepted = Signal(use_caching=True)

#: Sent when a hook or the write failed, after the undo. Adds: ``exception``, ``move`` (to failed_state, or None).
transition_failed = Signal(use_caching=True)

#: Sent when the call was refused; nothing was written. Adds: ``exception``.
transition_refused = Signal(use_caching=True)
