"""
Prove that a trace goes from the call to its attempts, and that figures are observed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_logic import tracing
from django_logic.background import PermanentFailure, attempt, claim
from tests.app.hooked import Boom
from tests.background.flows import AT_ONCE, Flow, message, messages, new_ticket, work
from tests.background.onlookers import enter_worker

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
telemetry: Any = pytest.importorskip("django_logic.contrib.opentelemetry")
sdk_trace: Any = pytest.importorskip("opentelemetry.sdk.trace")
sdk_metrics: Any = pytest.importorskip("opentelemetry.sdk.metrics")
metrics_export: Any = pytest.importorskip("opentelemetry.sdk.metrics.export")
trace_export: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
span_export: Any = pytest.importorskip("opentelemetry.sdk.trace.export")

pytestmark = pytest.mark.django_db(transaction=True)


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


def run(pk: int) -> Any:
    """
    Run one attempt the way a worker does, within the trace of its call.
    """
    found = claim.take("default", pk)
    assert found is not None
    with tracing.around(found):
        return attempt.run_claimed(found, "default")


def attempts(spans: Any) -> list[Any]:
    """
    Return the spans of attempts that have ended.
    """
    return [span for span in spans.get_finished_spans() if span.name.startswith("flow.")]


def test_call_keeps_the_trace_it_was_made_in(flow: Flow, spans: Any) -> None:
    """
    The row has the traceparent of the span around the call, and so have the rows that follow it.
    """
    flow(work(callbacks=[lambda instance, **keywords: None]))
    ticket = new_ticket()
    with spans.provider.get_tracer("shop").start_as_current_span("checkout") as span:
        ticket.flow.go()
    context = span.get_span_context()

    run(message(ticket).pk)

    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert [row.traceparent for row in messages(ticket)] == [expected, expected]


def test_call_outside_of_any_span_keeps_none(flow: Flow, spans: Any) -> None:
    """
    Without a trace there is nothing to keep, and the attempt has a span without a link.
    """
    flow(work())
    ticket = new_ticket()
    ticket.flow.go()

    run(message(ticket).pk)

    (span,) = attempts(spans)
    assert (message(ticket).traceparent, span.links) == ("", ())


def test_attempt_runs_within_a_span_that_links_to_the_call(flow: Flow, spans: Any) -> None:
    """
    Each attempt is a trace of its own with a link to the call; the hooks' spans are its children.
    """
    tracer = spans.provider.get_tracer("shop")

    def effect(instance: Any, **keywords: Any) -> None:
        with tracer.start_as_current_span("label"):
            pass

    flow(work(effect, queue="a"))
    ticket = new_ticket()
    with tracer.start_as_current_span("checkout") as call:
        ticket.flow.go()

    run(message(ticket).pk)

    (span,) = attempts(spans)
    (label,) = [one for one in spans.get_finished_spans() if one.name == "label"]
    row = message(ticket)
    assert [link.context.span_id for link in span.links] == [call.get_span_context().span_id]
    assert span.context.trace_id != call.get_span_context().trace_id
    assert (label.parent.span_id, span.parent) == (span.context.span_id, None)
    assert (span.name, span.kind.name) == ("flow.go", "CONSUMER")
    assert dict(span.attributes) == {
        "django_logic.message_id": row.pk,
        "django_logic.kind": "transition",
        "django_logic.object": f"app.ticket#{ticket.pk}",
        "django_logic.process": "flow",
        "django_logic.transition": "go",
        "django_logic.transition_id": str(row.transition_id),
        "django_logic.root_id": str(row.root_id),
        "django_logic.queue": "a",
        "django_logic.attempt": 1,
        "django_logic.outcome": "succeeded",
    }
    assert span.status.is_ok


@pytest.mark.parametrize(("error", "outcome"), [(Boom("no route"), "open"), (PermanentFailure("never"), "failed")])
def test_span_of_a_failed_attempt_says_what_went_wrong(flow: Flow, spans: Any, error: Exception, outcome: str) -> None:
    """
    An attempt that failed is an error, whether another one follows or not.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        raise error

    flow(work(effect, retry=AT_ONCE))
    ticket = new_ticket()
    ticket.flow.go()

    run(message(ticket).pk)

    (span,) = attempts(spans)
    assert span.attributes["django_logic.outcome"] == outcome
    assert (span.status.status_code.name, span.status.description) == ("ERROR", f"{type(error).__name__}: {error}")


def test_nothing_is_traced_once_it_is_unplugged(flow: Flow, spans: Any) -> None:
    """
    Calls and attempts go on without traces.
    """
    telemetry.uninstrument()
    flow(work())
    ticket = new_ticket()
    with spans.provider.get_tracer("shop").start_as_current_span("checkout"):
        ticket.flow.go()

    run(message(ticket).pk)

    assert (message(ticket).traceparent, attempts(spans)) == ("", [])


def observed(reader: Any) -> dict[str, list[tuple[dict[str, str], float]]]:
    """
    Collect, and return the points of each gauge.
    """
    data = reader.get_metrics_data()
    return {
        metric.name: [(dict(point.attributes), point.value) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_figures_are_observable_gauges(flow: Flow) -> None:
    """
    A collection observes rows by queue and reason, outcomes, and workers.
    """
    flow(work(queue="a"))
    new_ticket().flow.go()
    enter_worker("a", name="left", is_listening=True, claim_ms=2.0)
    reader = metrics_export.InMemoryMetricReader()
    provider = sdk_metrics.MeterProvider([reader])
    telemetry.instrument(meter_provider=provider)

    found = observed(reader)

    telemetry.uninstrument()
    provider.shutdown()
    base = {"database": "default"}
    assert found["django_logic.open_rows"] == [({**base, "queue": "a", "reason": "claimable_now"}, 1)]
    assert ({**base, "outcome": "succeeded"}, 0) in found["django_logic.ended_rows"]
    worker = {**base, "worker": "left", "host": "h1"}
    assert found["django_logic.worker.up"] == [(worker, 1.0)]
    assert found["django_logic.worker.listening"] == [(worker, 1.0)]
    assert found["django_logic.worker.claim"] == [(worker, 0.002)]
    assert found["django_logic.held_snapshot"] == [(base, 0.0)]
    assert [attributes for attributes, _age in found["django_logic.oldest_open_row"] if attributes["queue"] == "a"]
