"""
The envelope of an event outside Python: CloudEvents 1.0, by its own library.
"""

from __future__ import annotations

from typing import Any

from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from django.core.serializers.json import DjangoJSONEncoder

from django_logic.outbox.event import Event

__all__ = ["FORMAT", "STRUCTURED", "as_cloud_event", "structured"]

FORMAT = JSONFormat()
#: The media type of a whole event as one JSON text.
STRUCTURED = "application/cloudevents+json"


def as_cloud_event(event: Event) -> CloudEvent:
    """
    Return an event in its envelope; ``partitionkey``, ``sequence`` and ``traceparent`` are its extensions.
    """
    attributes: dict[str, Any] = {
        "id": str(event.id),
        "source": "/" + event.aggregate.replace(".", "/"),
        "type": event.topic,
        "subject": event.key,
        "time": event.occurred_at,
        "datacontenttype": "application/json",
        "partitionkey": event.key,
    }
    if event.schema:
        attributes["dataschema"] = event.schema
    if event.sequence is not None:
        attributes["sequence"] = str(event.sequence)
    if event.traceparent:
        attributes["traceparent"] = event.traceparent
    return CloudEvent(attributes=attributes, data=dict(event.payload))


def structured(event: Event) -> bytes:
    """
    Return an event with its envelope as one JSON text.
    """
    body = FORMAT.write(as_cloud_event(event))
    return body if isinstance(body, bytes) else body.encode()
