"""
A process to be tested: a parcel's way, with a nested process, hooks that fail, and work on a worker.
"""

from __future__ import annotations

from typing import Any

from django_logic import Action, Process, Transition
from django_logic.background import BackgroundTransition, Backoff

AT_ONCE = Backoff(first=600, factor=1, limit=600, jitter=0)


def reserve(ticket: Any, **keywords: Any) -> None:
    """
    Leave a mark in the database.
    """
    type(ticket).objects.filter(pk=ticket.pk).update(note=f"{ticket.note}reserved ")


def book_courier(ticket: Any, **keywords: Any) -> None:
    """
    Leave another one.
    """
    type(ticket).objects.filter(pk=ticket.pk).update(note=f"{ticket.note}booked ")


def tell(ticket: Any, **keywords: Any) -> None:
    """
    Tell somebody.
    """


def warn(ticket: Any, exception: BaseException, **keywords: Any) -> None:
    """
    Warn somebody.
    """


def is_staff(ticket: Any, user: Any = None, **keywords: Any) -> bool:
    """
    Let staff through.
    """
    return user is None or user.is_staff


class ReturnProcess(Process):
    """
    What happens to parcels that come back.
    """

    transitions = [Transition("take_back", sources=["sent"], target="returned", callbacks=[tell])]


class ParcelProcess(Process):
    """
    From new over packed to sent.
    """

    process_name = "way"
    nested_processes = [ReturnProcess]
    transitions = [
        Transition(
            "pack",
            sources=["new"],
            target="packed",
            permissions=[is_staff],
            side_effects=[reserve],
            callbacks=[tell],
            failure_callbacks=[warn],
            failed_state="broken",
        ),
        BackgroundTransition(
            "send",
            sources=["packed"],
            target="sent",
            in_progress_state="sending",
            failed_state="lost",
            side_effects=[book_courier],
            callbacks=[tell],
            failure_callbacks=[warn],
            retry=AT_ONCE,
            max_errors=2,
        ),
        Transition("restart", sources=["broken"], target="new", next_transition="pack"),
        Action("look", sources=["sent"], callbacks=[tell]),
    ]
