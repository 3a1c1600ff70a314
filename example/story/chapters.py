"""
The chapters in their order, and how they are told.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

from example.story.background import killed_worker, silent_courier
from example.story.cast import Cast, assemble
from example.story.events import killed_relay, told_to_others, unreadable_event
from example.story.looking_back import one_week, waiting_times
from example.story.opening import one_order, two_machines
from example.story.refusals import failed_work, past_the_process, too_late
from example.story.stage import NotAsTold, Stage
from example.story.workers import lost_reservation, two_workers

__all__ = ["CHAPTERS", "Chapter", "tell"]


@dataclass(frozen=True, slots=True)
class Chapter:
    """
    Name a chapter, and the function that tells it.
    """

    title: str
    tell: Callable[[Stage, Cast], None]


CHAPTERS = (
    Chapter("two machines", two_machines),
    Chapter("an order, a double click, a payment", one_order),
    Chapter("two workers, one order", two_workers),
    Chapter("too late to cancel", too_late),
    Chapter("past the process", past_the_process),
    Chapter("goods reserved for nothing", lost_reservation),
    Chapter("work that fails half way", failed_work),
    Chapter("a courier who does not answer", silent_courier),
    Chapter("a worker is killed", killed_worker),
    Chapter("a broker is down, and up again", told_to_others),
    Chapter("a relay is killed in the middle of a batch", killed_relay),
    Chapter("an event that the broker can not take", unreadable_event),
    Chapter("a week in the life of an order", one_week),
    Chapter("how long do orders sit in processing?", waiting_times),
)


def tell(stage: Stage) -> None:
    """
    Tell every chapter. One that raises ends the story, because the later ones build on it.
    """
    cast = assemble()
    for number, chapter in enumerate(CHAPTERS, start=1):
        stage.open(number, len(CHAPTERS), chapter.title)
        try:
            chapter.tell(stage, cast)
        except NotAsTold as surprise:
            stage.fail(str(surprise))
            return
        except Exception as error:
            stage.block(traceback.format_exc())
            stage.fail(f"{type(error).__name__}: {error}")
            return
