"""
Publish to webhooks and say what became of it; with all that tests of them need of libraries, so that one place skips.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from django_logic.outbox.event import Event
from django_logic.outbox.publishers import Fate
from tests.outbox.receivers import Handler
from tests.servers import are_required

try:
    import httpx
    import trustme
    from cloudevents.core.bindings.http import HTTPMessage, from_http
    from standardwebhooks import Webhook as Verifier
    from standardwebhooks import WebhookVerificationError

    from django_logic.outbox.envelope import FORMAT, as_cloud_event
    from django_logic.outbox.publishers.answers import rest_after
    from django_logic.outbox.publishers.egress import is_public
    from django_logic.outbox.publishers.webhook import MOST_MET, MOST_REDIRECTS, Webhook
except ModuleNotFoundError:
    if are_required():
        raise
    pytest.skip("install django-logic[webhooks] and trustme to test webhooks", allow_module_level=True)

__all__ = [
    "FIXTURES",
    "FORMAT",
    "INSIDE",
    "MOST_MET",
    "MOST_REDIRECTS",
    "NAME",
    "NEW",
    "OLD",
    "OTHER_PUBLIC",
    "PUBLIC",
    "STRANGE",
    "HTTPMessage",
    "Make",
    "Verifier",
    "Webhook",
    "WebhookVerificationError",
    "as_cloud_event",
    "error_of",
    "event",
    "fates",
    "from_http",
    "httpx",
    "is_public",
    "redirect",
    "rest_after",
    "trustme",
]

#: The plugin with the fixtures `receiver`, `webhook`, `internet` and `outside`, for ``pytest_plugins``.
FIXTURES = "tests.outbox.webhook_fixtures"
OLD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEW = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
STRANGE = "whsec_vKMBZ0uzVBAhFdoNUGQn0Q2o2OhGJ0Lt"
NAME = "hooks.example"
PUBLIC = "93.184.216.34"
OTHER_PUBLIC = "8.8.8.8"
INSIDE = [
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.168.0.1",
    "198.18.0.1",
    "0.0.0.0",  # noqa: S104 (nothing is bound to it)
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "fc00::1",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]

Make = Callable[..., Webhook]


def event(**fields: Any) -> Event:
    """
    Make an event of an order.
    """
    facts = {"id": uuid4(), "topic": "shop.order.placed", "key": "shop.order:1", "payload": {"name": "Ærø"}}
    return Event(**{**facts, "aggregate": "shop.order", "occurred_at": datetime.now(UTC), **fields})


def fates(publisher: Webhook, *events: Event) -> list[Fate]:
    """
    Publish events and return what became of each.
    """
    return [result.fate for result in publisher.publish(events)]


def error_of(publisher: Webhook) -> tuple[Fate, str]:
    """
    Publish one event and return its fate, and why.
    """
    (result,) = publisher.publish([event()])
    return result.fate, result.error


def redirect(status: int, to: str) -> Callable[[Handler], None]:
    """
    Return an answer that sends what comes to /hook somewhere else, and takes what comes to other paths.
    """
    return lambda handler: handler.reply(status, Location=to) if handler.path == "/hook" else handler.reply(200)
