"""
Background work and events for OpenTelemetry: figures that are observed, and a span for each attempt and each delivery,
linked to the call it began with.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.core.exceptions import ImproperlyConfigured

from django_logic import tracing
from django_logic.contrib import sources

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import MeterProvider

    from django_logic.contrib.opentelemetry.observing import NAME, observe
    from django_logic.contrib.opentelemetry.readings import OF_BACKGROUND, OF_EVENTS
    from django_logic.contrib.opentelemetry.spans import SpanTracer
except ImportError as error:
    raise ImproperlyConfigured(
        "django_logic.contrib.opentelemetry needs opentelemetry-api: pip install 'django-logic[opentelemetry]'."
    ) from error

__all__ = ["SpanTracer", "instrument", "uninstrument"]


def instrument(
    using: Iterable[str] = ("default",),
    *,
    with_metrics: bool = True,
    meter_provider: MeterProvider | None = None,
    tracer_provider: trace.TracerProvider | None = None,
) -> None:
    """
    Plug OpenTelemetry in: spans, traces of calls and, in one process of the project, the figures of what is installed.

    Call it in ``AppConfig.ready()``. Every process that exports the figures exports the same ones, and each look costs
    queries: workers and most web processes do with ``with_metrics=False``.
    """
    tracing.plug_in(SpanTracer(trace.get_tracer(NAME, tracer_provider=tracer_provider)))
    if not with_metrics:
        return
    meter = metrics.get_meter(NAME, meter_provider=meter_provider)
    aliases = [using] if isinstance(using, str) else list(using)
    if sources.are_installed(sources.BACKGROUND):
        observe(meter, aliases, sources.of_background, OF_BACKGROUND)
    if sources.are_installed(sources.EVENTS):
        observe(meter, aliases, sources.of_events, OF_EVENTS)


def uninstrument() -> None:
    """
    Plug the tracer out; what is observed stays with its provider.
    """
    tracing.unplug()
