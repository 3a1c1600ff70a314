"""
Make webhooks that post to a receiver on this machine, straight or by an internet that a test describes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.outbox.receivers import HOST, Internet, Receiver, receiving
from tests.outbox.webhooks import NAME, OLD, PUBLIC, Make, Webhook


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """
    Give a receiver on this machine.
    """
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def webhook(receiver: Receiver) -> Iterator[Make]:
    """
    Make publishers, by default to the receiver, and close them before it ends.
    """
    with ExitStack() as stack:

        def make(**options: Any) -> Webhook:
            secret = {} if "secrets" in options else {"secret": OLD}
            made = Webhook(**{"url": receiver.url(), "allow_private": True, **secret, **options})
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def internet(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Internet:
    """
    Give an internet where a public address leads to the receiver, under a name.
    """
    internet = Internet(names={NAME: [[PUBLIC]]}, routes={PUBLIC: (HOST, receiver.port)})
    internet.install(monkeypatch)
    return internet


@pytest.fixture
def outside(receiver: Receiver, internet: Internet, webhook: Make) -> Make:
    """
    Make publishers that reach the receiver by the internet, and so may call public addresses only.
    """
    return lambda **options: webhook(
        **{"url": receiver.url(NAME), "allow_private": False, "allow_http": True, **options}
    )
