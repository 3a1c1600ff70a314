"""
The manual's background transition, word for word, with hooks that fail, wait and crash as a test asks them to.

A test says what shall happen by keywords of the call. What hooks did stands in the ledger, which no rollback reaches.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from django_logic import Process, Transition
from django_logic.background import BackgroundAction, BackgroundTransition, PermanentFailure
from django_logic.background.testpoints import pause
from tests.scenarios.seed_app.models import Booking
from tests.worker_app.ledger import ledger, noted


class CustomsRefusal(Exception):
    """
    Stand for an exception type of somebody else.
    """


TROUBLES: dict[str, type[Exception]] = {
    "outage": ConnectionError,
    "no such country": PermanentFailure,
    "customs": CustomsRefusal,
}


@noted
def book_courier(instance: Any, **kwargs: Any) -> None:
    """
    Write a booking, in the attempt's transaction.
    """
    Booking.objects.create(consignment_id=instance.pk, pid=os.getpid())


@noted
def print_labels(
    instance: Any, transition_id: Any, trouble: str = "", times: int = 99, gate: str = "", **kwargs: Any
) -> None:
    """
    Print, or have the trouble a test asks for.
    """
    if gate:
        pause(gate, "printing")
    if trouble and ledger().count("print_labels", transition_id=transition_id) <= times:
        if trouble == "power cut":
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        raise TROUBLES[trouble](trouble)


@noted
def send_tracking_email(instance: Any, **kwargs: Any) -> None:
    """
    Be run after the commit.
    """


@noted
def call_customer(instance: Any, exception: BaseException, **kwargs: Any) -> None:
    """
    Be run when the work was given up.
    """


@noted
def start_follow_up(instance: Any, **kwargs: Any) -> None:
    """
    Start the next background transition from a callback.
    """
    instance.process.remind()


class OrderProcess(Process):
    """
    The manual's process.
    """

    transitions = [
        Transition(action_name="approve", sources=["draft"], target="approved"),
        BackgroundTransition(
            action_name="fulfil",
            sources=["approved"],
            target="fulfilled",
            in_progress_state="fulfilling",
            failed_state="fulfilment_failed",
            queue="django_logic.critical",
            timeout=600,
            side_effects=[book_courier, print_labels],
            callbacks=[send_tracking_email],
        ),
        # What the manual tells in words only.
        Transition(action_name="cancel", sources=["approved", "fulfilling"], target="cancelled"),
        BackgroundTransition(
            action_name="fulfil_or_call",
            sources=["approved"],
            target="fulfilled",
            in_progress_state="fulfilling",
            failed_state="fulfilment_failed",
            queue="django_logic.critical",
            timeout=1,
            no_retry_on=(CustomsRefusal,),
            side_effects=[book_courier, print_labels],
            callbacks=[start_follow_up],
            failure_callbacks=[call_customer],
        ),
        BackgroundAction(action_name="remind", sources=["approved", "fulfilled"], side_effects=[book_courier]),
    ]
