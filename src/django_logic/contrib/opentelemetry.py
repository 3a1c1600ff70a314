"""
Background work for OpenTelemetry: figures as observable gauges, and a span for each attempt, linked to its call.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, close_old_connections

from django_logic import tracing
from django_logic.background.metrics import Snapshot, snapshot

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImproperlyConfigured(
        "django_logic.contrib.opentelemetry needs opentelemetry-api: pip install 'django-logic[opentelemetry]'."
    ) from error

__all__ = ["SpanTracer", "instrument", "uninstrument"]

logger = logging.getLogger("django-logic.metrics")

NAME = "django_logic"
TRACEPARENT = "traceparent"
#: All gauges of one collection share a look that is not older than this; seconds.
FRESH = 1.0

Reading = Iterator[tuple[float, Mapping[str, str]]]


def open_rows(figures: Snapshot) -> Reading:
    """
    Read how many rows are open.
    """
    for (queue, code), count in figures.open_rows.items():
        yield count, {"queue": queue, "reason": str(code)}


def oldest(figures: Snapshot) -> Reading:
    """
    Read how old the oldest open rows are.
    """
    for queue, seconds in figures.oldest_seconds.items():
        yield seconds, {"queue": queue}


def ended(figures: Snapshot) -> Reading:
    """
    Read how many rows have ended how.
    """
    for outcome, count in figures.ended.items():
        yield count, {"outcome": str(outcome)}


def of_workers(attribute: str) -> Callable[[Snapshot], Reading]:
    """
    Make what reads one figure of each worker.
    """

    def read(figures: Snapshot) -> Reading:
        for worker in figures.workers:
            value = getattr(worker, attribute)
            if value is not None:
                yield float(value), {"worker": worker.name, "host": worker.host}

    return read


def held_snapshot(figures: Snapshot) -> Reading:
    """
    Read how long vacuum has been kept from its work.
    """
    yield figures.held_snapshot_seconds, {}


#: The name, the unit and the words of each gauge, and what reads it.
GAUGES: tuple[tuple[str, str, str, Callable[[Snapshot], Reading]], ...] = (
    ("open_rows", "{row}", "Open background rows by queue and by the reason why they do not move.", open_rows),
    ("oldest_open_row", "s", "Age of the oldest open background row; 0 for none.", oldest),
    ("ended_rows", "{row}", "Background rows that ended within the days they are kept.", ended),
    ("worker.up", "1", "Whether a worker was seen within 30 seconds.", of_workers("is_alive")),
    ("worker.seen", "s", "How long ago a worker was seen.", of_workers("seen_seconds")),
    ("worker.listening", "1", "Whether a worker hears of new rows at once.", of_workers("is_listening")),
    ("worker.claim", "s", "How long a worker's last claim took.", of_workers("claim_seconds")),
    ("held_snapshot", "s", "How long a session elsewhere has kept vacuum from its work; 0 for none.", held_snapshot),
)


class Figures:
    """
    Take the figures of a database once for all gauges of a collection.
    """

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._lock = threading.Lock()
        self._taken, self._figures = float("-inf"), Snapshot(open_rows={}, oldest_seconds={})

    def now(self) -> Snapshot:
        """
        Return fresh figures; none where the database can't be read.
        """
        with self._lock:
            if time.monotonic() - self._taken >= FRESH:
                close_old_connections()
                try:
                    self._figures = snapshot(self.alias)
                except DatabaseError as problem:
                    logger.warning("The figures of background work on %r can't be read: %s", self.alias, problem)
                    self._figures = Snapshot(open_rows={}, oldest_seconds={})
                finally:
                    close_old_connections()
                self._taken = time.monotonic()
            return self._figures

    def observer(self, read: Callable[[Snapshot], Reading]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """
        Make the callback of one gauge.
        """

        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            for value, attributes in read(self.now()):
                yield Observation(value, {"database": self.alias, **attributes})

        return observe


class SpanTracer:
    """
    Keep a call's trace on its row, and run each attempt within a span of its own that links to it.

    A link and no child: an attempt may begin days after the call, and there may be several.
    """

    def __init__(self, tracer: trace.Tracer) -> None:
        self.tracer = tracer
        self.propagator = TraceContextTextMapPropagator()

    def current(self) -> str:
        """
        Return the ``traceparent`` of the span a call is made in, empty outside of any.
        """
        carrier: dict[str, str] = {}
        self.propagator.inject(carrier)
        return carrier.get(TRACEPARENT, "")

    @contextmanager
    def attempt(self, message: Any) -> Iterator[trace.Span]:
        """
        Run an attempt within a span, which says how the attempt ended.
        """
        with self.tracer.start_as_current_span(
            message.label,
            context=Context(),
            kind=trace.SpanKind.CONSUMER,
            links=self.links(message),
            attributes=attributes_of(message),
        ) as span:
            yield span
            if span.is_recording():
                tell_end(span, message)

    @contextmanager
    def publishing(self, events: Sequence[Any]) -> Iterator[trace.Span]:
        """
        Deliver events within a span that is linked to the spans their moves were made in.
        """
        links = [link for event in events for link in self.links(event)]
        topics = sorted({event.topic for event in events})
        with self.tracer.start_as_current_span(
            f"publish {topics[0] if len(topics) == 1 else 'events'}",
            context=Context(),
            kind=trace.SpanKind.PRODUCER,
            links=links,
            attributes={"django_logic.topics": topics, "django_logic.events": len(events)},
        ) as span:
            yield span

    def links(self, message: Any) -> list[trace.Link]:
        """
        Return the link to the span something was asked in, told by its ``traceparent``; none where it had none.
        """
        context = self.propagator.extract({TRACEPARENT: message.traceparent}, context=Context())
        found = trace.get_current_span(context).get_span_context()
        return [trace.Link(found)] if found.is_valid else []


def attributes_of(message: Any) -> dict[str, Any]:
    """
    Return what a span says of its row; keywords stay where they are.
    """
    return {
        "django_logic.message_id": message.pk,
        "django_logic.kind": str(message.kind),
        "django_logic.object": message.subject,
        "django_logic.process": message.process_name,
        "django_logic.transition": message.transition_name,
        "django_logic.transition_id": str(message.transition_id),
        "django_logic.root_id": str(message.root_id),
        "django_logic.queue": message.queue_name,
        "django_logic.attempt": message.attempts_started,
    }


def tell_end(span: trace.Span, message: Any) -> None:
    """
    Say on the span how its attempt ended, as the row tells; silent where the row can't be read.
    """
    rows = type(message).objects.using(message._state.db).filter(pk=message.pk)
    try:
        told = rows.values_list("outcome", "errors_count", "ended_in_failure", "last_error_message").first()
    except DatabaseError:
        return
    if told is None:
        return
    outcome, errors, has_failed, text = told
    span.set_attribute("django_logic.outcome", outcome or "open")
    if has_failed or errors > message.errors_count:
        span.set_status(trace.StatusCode.ERROR, text.partition("\n")[0][:200])


def instrument(
    using: Iterable[str] = ("default",),
    *,
    with_metrics: bool = True,
    meter_provider: MeterProvider | None = None,
    tracer_provider: trace.TracerProvider | None = None,
) -> None:
    """
    Plug OpenTelemetry in: spans for attempts, traces for calls and, in one process of the project, the figures.

    Call it in ``AppConfig.ready()``. Every process that exports the figures exports the same ones, and each look costs
    queries: workers and most web processes do with ``with_metrics=False``.
    """
    tracing.plug_in(SpanTracer(trace.get_tracer(NAME, tracer_provider=tracer_provider)))
    if not with_metrics:
        return
    meter = metrics.get_meter(NAME, meter_provider=meter_provider)
    sources = [Figures(alias) for alias in ([using] if isinstance(using, str) else using)]
    for name, unit, words, read in GAUGES:
        callbacks = [source.observer(read) for source in sources]
        meter.create_observable_gauge(f"{NAME}.{name}", callbacks, unit=unit, description=words)


def uninstrument() -> None:
    """
    Plug the tracer out; gauges stay with their provider.
    """
    tracing.unplug()
