"""
Functions that build payloads, and what can be said of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured

from django_logic.transitions import LONGEST_TOPIC

__all__ = ["payload"]

BuilderT = TypeVar("BuilderT", bound=Callable[..., Any])


def payload(*, topic: Any = "", schema: Any = "") -> Callable[[BuilderT], BuilderT]:
    """
    Give a function that builds payloads a topic, and a schema that tells their shape.

    Example::

        @payload(topic="order.paid", schema="https://schemas.example.com/order-paid/2")
        def paid(order, payload, **kwargs):
            return {**payload, "total": str(order.total)}

    Raises: ImproperlyConfigured for what no column holds. Source: docs/events.md
    """
    if not all(is_fit(text) for text in (topic, schema)):
        raise ImproperlyConfigured(
            f"django_logic.outbox.payload takes topic= and schema=, both text of at most {LONGEST_TOPIC} characters"
            f" without blanks around it; found {topic!r} and {schema!r}."
            ' Write @payload(topic="order.paid") above the function.'
        )

    def mark(build: BuilderT) -> BuilderT:
        build.event_topic, build.event_schema = topic, schema  # type: ignore[attr-defined]
        return build

    return mark


def is_fit(text: Any) -> bool:
    """
    Tell whether a column holds a text, and people can write it.
    """
    return isinstance(text, str) and text.strip() == text and len(text) <= LONGEST_TOPIC and text.isprintable()
