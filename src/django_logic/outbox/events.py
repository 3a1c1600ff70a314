"""
From a move to its event: the topic, the payload, the rows.

One place says what a declaration emits; the catalogue of ``dl_events`` asks the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django_logic import tracing
from django_logic.call import hook_keywords, running_within
from django_logic.hooks import ask
from django_logic.moves import Move
from django_logic.outbox.models import OutboxMessage, deliveries_of, new_id
from django_logic.outbox.payloads import checked, plain_data
from django_logic.rows import SEQUENCE, Row
from django_logic.states import as_text
from django_logic.subject import Column

__all__ = ["MOVE_SCHEMA", "Told", "rows_of", "topic_of"]

#: Names the shape of a payload that nobody builds otherwise.
MOVE_SCHEMA = "urn:django-logic:move:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """
    Hold what a declaration says of an event: its topic, who builds its payload, and the name of that shape.
    """

    topic: str
    schema: str
    build: Callable[..., Any] | None = None


def topic_of(column: Column, event: Any, what: Any) -> Told | None:
    """
    Return what is told where ``event`` was declared and ``what`` is the new state or the action; None for nothing.
    """
    if event is False:
        return None
    text = as_text(what)
    default = f"{column.model_name}.{'null' if text is None else text}"  # as the payload has it
    if callable(event):
        topic = getattr(event, "event_topic", "") or default
        return Told(topic=topic, schema=getattr(event, "event_schema", ""), build=event)
    return Told(topic=event if isinstance(event, str) else default, schema=MOVE_SCHEMA)


def rows_of(move: Move) -> Iterator[Row]:
    """
    Contribute the message of a move, and its deliveries.

    Raises: PayloadRefused, and what a function that builds the payload raises.
    """
    told = topic_of(move.column, move.event, move.new if move.is_write else move.action)
    body = None if told is None else payload_of(move, told)
    if told is None or body is None:
        return
    column, ident = move.column, new_id()
    aggregate = f"{column.app_label}.{column.model_name}"
    values = {
        "id": ident,
        "key": move.key,
        "topic": told.topic,
        "payload": checked(told.topic, body, is_of_move=True),
        "sequence": SEQUENCE if move.is_write else None,
        "occurred_at": move.occurred_at,
        "traceparent": tracing.current(),
    }
    yield Row(model=OutboxMessage, values=values, alike=(("aggregate", aggregate), ("schema", told.schema)))
    yield from deliveries_of(ident, aggregate, move.key, told.topic)


def payload_of(move: Move, told: Told) -> Mapping[str, Any] | None:
    """
    Return what is told of a move; a function that builds it may answer None for nothing this time.
    """
    plain = default_payload(move)
    if told.build is None:
        return plain
    with running_within(move.call):
        built = ask(told.build, move.call.instance, keywords={**hook_keywords(move.call), "payload": plain})
    data: Mapping[str, Any] | None = plain_data(told.topic, built)
    return data


def default_payload(move: Move) -> dict[str, Any]:
    """
    Return what is told of every move.
    """
    return {
        f"{move.column.model_name}_id": move.pk,
        "object_id": move.key,
        "from": move.expected,
        "to": move.new,
        "action": move.action,
        "sequence": SEQUENCE if move.is_write else None,
        "actor": move.actor_label or move.actor_id,
        "reason": move.reason,
        "occurred_at": move.occurred_at,
    }
