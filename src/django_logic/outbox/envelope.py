"""
The envelope of an event outside Python: CloudEvents 1.0, by its own library.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from django.utils import timezone

from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import Undeliverable

__all__ = ["FORMAT", "STRUCTURED", "as_cloud_event", "structured"]

FORMAT = JSONFormat()
#: The media type of a whole event as one JSON text.
STRUCTURED = "application/cloudevents+json"


def as_cloud_event(event: Event) -> CloudEvent:
    """
    Return an event in its envelope; ``partitionkey``, ``sequence`` and ``traceparent`` are its extensions.

    What an event does not have is left out, since an attribute of an envelope is never empty. Times are in UTC.

    Raises: Undeliverable when the event has no topic, since no envelope goes without its type.
    """
    if not event.topic:
        raise Undeliverable(f"Event {event.id} refused: found the topic ''. Publish it anew under a topic.")
    attributes: dict[str, Any] = {
        "id": str(event.id),
        "source": "/" + quote(event.aggregate.replace(".", "/")),
        "type": event.topic,
        "time": in_utc(event.occurred_at),
        "datacontenttype": "application/json",
    }
    optional = {
        "subject": event.key,
        "partitionkey": event.key,
        "dataschema": event.schema,
        "sequence": "" if event.sequence is None else str(event.sequence),
        "traceparent": event.traceparent,
    }
    attributes |= {name: value for name, value in optional.items() if value}
    return CloudEvent(attributes=attributes, data=dict(event.payload))


def structured(event: Event) -> bytes:
    """
    Return an event with its envelope as one JSON text.
    """
    return FORMAT.write(as_cloud_event(event))


def in_utc(moment: datetime) -> datetime:
    """
    Return a moment with its zone; one without is in the zone that Django stores such times in.
    """
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment, timezone.get_default_timezone())
    return moment.astimezone(UTC)
