"""
The broker: a destination of events with a publisher of our own, played by a book in a folder.

What matters for the shop: it may be away, it may stop answering in the middle of a batch, and it takes no message above
its limit. A project uses one of `django_logic.outbox.publishers` instead.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from django_logic.outbox import BrokerUnavailable, Event
from django_logic.outbox.publishers import Result, dead, sent
from example.shop.dispatch import PATIENCE_SECONDS, POLL_SECONDS, OutsideMachine

__all__ = ["Broker", "Exchange", "exchange"]

USUAL_LIMIT = 2_000


class Exchange(OutsideMachine):
    """
    Be the broker's side: keep what arrived, and be troublesome as the story wants it.
    """

    def take(self, event: Event) -> Result:
        """
        Keep one event, unless it is too large.
        """
        payload = json.dumps(dict(event.payload), cls=DjangoJSONEncoder)
        if len(payload) > self.limit():
            return dead(f"too large: {len(payload)} bytes, the limit is {self.limit()}")
        told = {"id": str(event.id), "topic": event.topic, "key": event.key, "sequence": event.sequence}
        with (self.folder / "arrived").open("a") as book:
            book.write(json.dumps({**told, "pid": os.getpid()}) + "\n")
        self.wait_while_full()
        return sent()

    def arrived(self) -> list[dict[str, Any]]:
        """
        Return all that arrived, in its order and as often as it did.
        """
        book = self.folder / "arrived"
        return [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []

    def go_down(self) -> None:
        """
        Answer nobody until `come_up`.
        """
        (self.folder / "down").touch()

    def come_up(self) -> None:
        """
        Answer again.
        """
        (self.folder / "down").unlink(missing_ok=True)

    def refuse_while_down(self) -> None:
        """
        Note who asked in vain.

        Raises: BrokerUnavailable.
        """
        if (self.folder / "down").exists():
            (self.folder / "asked-in-vain").touch()
            raise BrokerUnavailable("connection refused")

    def was_asked_in_vain(self) -> bool:
        """
        Tell whether somebody asked while it was down.
        """
        return (self.folder / "asked-in-vain").exists()

    def fill_up_after(self, count: int) -> None:
        """
        Take so many events more, and let whoever brings the last one wait until `get_going`.
        """
        (self.folder / "full").write_text(str(len(self.arrived()) + count))

    def is_full(self) -> bool:
        """
        Tell whether somebody waits.
        """
        full = self.folder / "full"
        return full.exists() and len(self.arrived()) >= int(full.read_text())

    def get_going(self) -> None:
        """
        Take events at once again.
        """
        (self.folder / "full").unlink(missing_ok=True)

    def wait_while_full(self) -> None:
        """
        Take as long as the story wants, within bounds.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.is_full() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def limit(self) -> int:
        """
        Return how many bytes a message may have.
        """
        limit = self.folder / "limit"
        return int(limit.read_text()) if limit.exists() else USUAL_LIMIT

    def allow(self, size: int) -> None:
        """
        Take larger messages.
        """
        (self.folder / "limit").write_text(str(size))


exchange = Exchange("broker")


class Broker:
    """
    Publish to the exchange: all that a publisher has to know of its broker.
    """

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Deliver events, and say what became of each.
        """
        exchange.refuse_while_down()
        return [exchange.take(event) for event in events]

    def close(self) -> None:
        """
        Let go of nothing.
        """
