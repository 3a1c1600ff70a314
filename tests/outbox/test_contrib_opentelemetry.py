"""
Prove that a trace goes from the move to the delivery of its event, and that figures of events are observed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_logic import Transition, tracing
from django_logic.background import BackgroundTransition, attempt, claim
from django_logic.background.models import TransitionMessage
from django_logic.outbox import Event, Undeliverable, relay, subscribe
from django_logic.outbox.models import OutboxMessage
from django_logic.outbox.publishers import Fate
from django_logic.outbox.relay import mark
from django_logic.outbox.subscribers import forget
from tests.app.models import Ticket
from tests.flows import Bind, declare

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
telemetry: Any = pytest.importorskip("django_logic.contrib.opentelemetry")
sdk_trace: Any = pytest.importorskip("opentelemetry.sdk.trace")
sdk_metrics: Any = pytest.importorskip("opentelemetry.sdk.metrics")
metrics_export: Any = pytest.importorskip("opentelemetry.sdk.metrics.export")
trace_export: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
span_export: Any = pytest.importorskip("opentelemetry.sdk.trace.export")

pytestmark = pytest.mark.django_db(transaction=True)

LOCAL = "django_logic.outbox.publishers.local.Subscribers"


@pytest.fixture
def spans() -> Iterator[Any]:
    """
    Plug tracing in, with an exporter that keeps what has ended, and its provider as `provider`.
    """
    provider, exporter = sdk_trace.TracerProvider(), trace_export.InMemorySpanExporter()
    provider.add_span_processor(span_export.SimpleSpanProcessor(exporter))
    telemetry.instrument(with_metrics=False, tracer_provider=provider)
    exporter.provider = provider
    yield exporter
    telemetry.uninstrument()
    provider.shutdown()


def published(spans: Any) -> list[Any]:
    """
    Return the spans of deliveries that have ended.
    """
    return [span for span in spans.get_finished_spans() if span.name.startswith("publish ")]


def traceparent(context: Any) -> str:
    """
    Write a span the way W3C Trace Context does.
    """
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_event_keeps_the_trace_of_its_move_and_its_delivery_links_to_it(bind: Bind, spans: Any) -> None:
    """
    The message has the traceparent of the request, and the relay's span is a trace of its own that links to it
    (transactional-outbox#488); what a subscriber does is part of the delivery.
    """
    bind(declare(Transition("open", ["new"], "opened")))
    tracer = spans.provider.get_tracer("shop")

    @subscribe("ticket.opened")
    def mail(event: Event) -> None:
        with tracer.start_as_current_span("mail"):
            pass

    with tracer.start_as_current_span("request") as request:
        Ticket.objects.create().flow.open()
    relay.drain("default")
    forget(mail)

    move = request.get_span_context()
    (span,) = published(spans)
    (mailed,) = [one for one in spans.get_finished_spans() if one.name == "mail"]
    assert OutboxMessage.objects.get().traceparent == traceparent(move)
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [(move.trace_id, move.span_id)]
    assert (span.parent, span.context.trace_id != move.trace_id) == (None, True)
    assert (mailed.parent.span_id, mailed.context.trace_id) == (span.context.span_id, span.context.trace_id)
    assert (span.name, span.kind.name) == ("publish ticket.opened", "PRODUCER")
    assert dict(span.attributes) == {"django_logic.topics": ("ticket.opened",), "django_logic.events": 1}


def test_relay_that_runs_within_a_span_does_not_put_deliveries_below_it(bind: Bind, spans: Any) -> None:
    """
    Who drains has its own trace, and the delivery has another one.
    """
    bind(declare(Transition("open", ["new"], "opened")))
    tracer = spans.provider.get_tracer("shop")
    Ticket.objects.create().flow.open()

    with tracer.start_as_current_span("cron"):
        relay.drain("default")

    (span,) = published(spans)
    assert (span.parent, span.links, OutboxMessage.objects.get().traceparent) == (None, (), "")


def test_background_work_carries_the_trace_of_its_attempt(bind: Bind, spans: Any) -> None:
    """
    What a worker moves is told with the span of its attempt, which links to the request: no step is missing.
    """
    bind(declare(BackgroundTransition("go", ["new"], "done", in_progress_state="busy")))
    ticket = Ticket.objects.create()
    with spans.provider.get_tracer("shop").start_as_current_span("request") as request:
        ticket.flow.go()

    found = claim.take("default", TransitionMessage.objects.get().pk)
    assert found is not None
    with tracing.around(found):
        attempt.run_claimed(found, "default")

    (work,) = [span for span in spans.get_finished_spans() if span.name == "flow.go"]
    told = dict(OutboxMessage.objects.values_list("topic", "traceparent"))
    assert told == {
        "ticket.busy": traceparent(request.get_span_context()),
        "ticket.done": traceparent(work.context),
    }


def test_nothing_is_traced_once_it_is_unplugged(bind: Bind, spans: Any) -> None:
    """
    Moves and deliveries go on without traces.
    """
    telemetry.uninstrument()
    bind(declare(Transition("open", ["new"], "opened")))
    with spans.provider.get_tracer("shop").start_as_current_span("request"):
        Ticket.objects.create().flow.open()

    assert relay.drain("default") == 1
    assert (OutboxMessage.objects.get().traceparent, published(spans)) == ("", [])


def observed(reader: Any) -> dict[str, tuple[bool, list[tuple[dict[str, str], float]]]]:
    """
    Collect, and return of each metric whether it only grows, and its points.
    """
    data = reader.get_metrics_data()
    return {
        metric.name: (
            getattr(metric.data, "is_monotonic", False),
            [(dict(point.attributes), point.value) for point in metric.data.data_points],
        )
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_figures_of_events_are_observed(bind: Bind, settings: Any) -> None:
    """
    A collection observes what waits and what is dead by destination, and attempts by fate as a counter.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"shop": {"BACKEND": LOCAL}, "copy": {"BACKEND": LOCAL}}}
    bind(declare(Transition("open", ["new"], "opened")))

    @subscribe("ticket.*")
    def refuse(event: Event) -> None:
        raise Undeliverable("no such route")

    Ticket.objects.create().flow.open()
    relay.drain("default", only=["shop"])
    forget(refuse)
    mark.count("default", "shop", {Fate.DEAD: 1})
    reader = metrics_export.InMemoryMetricReader()
    provider = sdk_metrics.MeterProvider([reader])
    telemetry.instrument(meter_provider=provider)

    found = observed(reader)

    telemetry.uninstrument()
    provider.shutdown()
    shop, copy = ({"database": "default", "destination": name} for name in ("shop", "copy"))
    assert found["django_logic.outbox.pending"] == (False, [(shop, 0), (copy, 1)])
    assert found["django_logic.outbox.dead"] == (False, [(shop, 1), (copy, 0)])
    assert found["django_logic.outbox.attempts"] == (True, [({**shop, "fate": "dead"}, 1)])
    is_counter, ((of_shop, none), (of_copy, age)) = found["django_logic.outbox.oldest_pending"]
    assert (is_counter, of_shop, of_copy, none, 0 <= age < 60) == (False, shop, copy, 0, True)
