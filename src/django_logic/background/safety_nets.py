"""
Two nets under the workers: rows that spent every attempt are finished, and ended ones are deleted in time.

A worker spreads them once a minute in a process of their own, since failure callbacks may run here.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import InterfaceError, OperationalError
from django.db.models import Count, Exists, F, Min, OuterRef, Q

from django_logic import conf
from django_logic.background import attempt, claim, gate
from django_logic.background.models import Cancellation, Kind, TransitionMessage, Worker
from django_logic.background.testpoints import reach
from django_logic.clock import FromNow
from django_logic.locks import is_transient

__all__ = ["cleanup_completed_transitions", "detect_stuck_transitions", "spread"]

logger = logging.getLogger("django-logic.worker")

BATCH = 1000
#: How many stuck rows one turn finishes at most; the next turn goes on.
MOST_AT_A_TIME = 10_000
#: Who has not been seen for so long serves nobody, and is forgotten after a day; seconds.
SEEN_WITHIN, FORGOTTEN_AFTER = 30.0, 86_400.0


def spread(using: str = "default") -> None:
    """
    Do all that is due once a minute.
    """
    reach("in_upkeep")
    finished = detect_stuck_transitions(using=using)
    deleted = cleanup_completed_transitions(using=using)
    Worker.objects.using(using).filter(last_seen_at__lt=FromNow(-FORGOTTEN_AFTER)).delete()
    if finished or deleted:
        logger.info("Upkeep: %d stuck rows finished, %d ended rows deleted", finished, deleted)


def detect_stuck_transitions(*, using: str = "default") -> int:
    """
    Finish rows that spent every attempt while nobody holds them, report queues nobody serves; return how many ended.
    """
    limit = conf.max_errors()
    spent = Q(max_errors=None, attempts_started__gte=limit) | Q(attempts_started__gte=F("max_errors"))
    rows = TransitionMessage.objects.using(using).open().transitions().filter(spent, run_at__lte=FromNow())
    finished = 0
    # No server-side cursor: a pooler in transaction mode would lose it.
    for pk in list(rows.order_by("id").values_list("pk", flat=True)[:MOST_AT_A_TIME]):
        try:
            message = claim.take(using, pk)
            finished += message is not None and attempt.run_claimed(message, using).error is not None
        except (OperationalError, InterfaceError) as error:
            if not is_transient(error):  # the database is away, which the next row would only find again
                raise
            logger.warning("Row %d is left to the next turn: %s", pk, error)
        except Exception:  # one bad row must not keep the others waiting
            logger.exception("Row %d could not be finished", pk)
    report_late(using)
    return finished


def report_late(using: str) -> None:
    """
    Write one line for each queue whose rows are late: nobody serves it, or its backlog is deep.
    """
    rows = TransitionMessage.objects.using(using).open().filter(run_at__lt=FromNow(-gate.stranded_seconds()))
    late = rows.order_by().values("queue_name").annotate(count=Count("pk"), first=Min("run_at"))
    found = [(row["queue_name"], row["count"], row["first"]) for row in late]
    if not found:
        return
    served = served_queues(using)
    for queue, count, first in found:
        if queue in served:
            logger.warning(
                "Queue %r: %d rows are late, the first since %s: its backlog is deep. Start more workers.",
                queue,
                count,
                first,
            )
        else:
            logger.error(
                "Queue %r: %d rows are late, the first since %s, and no worker serves it. Start one:"
                " manage.py dl_worker --queues %s",
                queue,
                count,
                first,
                queue,
            )


def served_queues(using: str) -> set[str]:
    """
    Return the queues that workers which were seen just now serve.
    """
    alive = Worker.objects.using(using).filter(last_seen_at__gte=FromNow(-SEEN_WITHIN))
    return {queue for queues in alive.values_list("queues", flat=True) for queue in queues}


def cleanup_completed_transitions(*, using: str = "default") -> int:
    """
    Delete rows that ended longer ago than the settings keep them, in batches; return how many.

    The newest failed row of an object and process stays: it alone says why the object is where it is. Rows are gone
    through in the order in which they were made, up to the first batch that is too young to have ended in time.
    """
    days = timedelta(days=conf.cleanup_days()).total_seconds()
    everything = TransitionMessage.objects.using(using)
    newer = everything.filter(
        ended_in_failure=True,
        kind=Kind.TRANSITION,
        app_label=OuterRef("app_label"),
        model_name=OuterRef("model_name"),
        instance_id=OuterRef("instance_id"),
        process_name=OuterRef("process_name"),
        pk__gt=OuterRef("pk"),
    )
    is_explanation = Q(ended_in_failure=True, kind=Kind.TRANSITION) & ~Exists(newer)
    deleted, seen = 0, 0
    while True:
        batch = list(everything.filter(pk__gt=seen).order_by("pk").values_list("pk", flat=True)[:BATCH])
        if not batch:
            break
        seen = batch[-1]
        rows = everything.filter(pk__in=batch)
        if not rows.filter(created__lt=FromNow(-days)).exists():
            break
        old = rows.filter(is_completed=True, completed_at__lt=FromNow(-days)).exclude(is_explanation)
        doomed = list(old.order_by().values_list("pk", flat=True))
        deleted += everything.filter(pk__in=doomed).delete()[0] if doomed else 0
        Cancellation.objects.using(using).filter(message_id__in=doomed).delete()
    return deleted
