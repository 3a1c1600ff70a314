"""
Spans: a call's trace is kept, and attempts and deliveries run within spans that link to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ["SpanTracer"]

TRACEPARENT = "traceparent"


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
