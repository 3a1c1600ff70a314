"""
What the answers of webhooks mean for the event that was posted, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx

from django_logic.outbox.publishers import Result, dead, egress, failed, put_off, sent, unavailable

__all__ = ["BLAMING", "beginning", "judge", "rest_after"]

#: Answers by which a receiver is away, unless others are taken meanwhile; and what they mean for this one event then.
BLAMING: Mapping[int, Callable[[str], Result]] = {
    HTTPStatus.SERVICE_UNAVAILABLE: put_off,
    # A proxy says these also of a receiver that broke off or hung over what was sent.
    HTTPStatus.BAD_GATEWAY: failed,
    HTTPStatus.GATEWAY_TIMEOUT: failed,
}
#: Answers by which nothing is taken for now. That of too many requests is never about what is in one.
AWAY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, *BLAMING})
#: For how long a receiver is left alone that asks for longer; seconds.
LONGEST_REST = 900.0
#: Bytes of an answer that are read, so that its connection can be used again.
MOST_READ = 65_536
#: Characters of an answer that are told.
MOST_TOLD = 200


def judge(host: str, answer: httpx.Response) -> Result:
    """
    Return the fate that an answer means; its status counts, even when its body breaks off.
    """
    words = beginning(answer)
    if answer.is_success:
        return sent()
    error = f"{host} answered {answer.status_code}"
    if answer.is_redirect:
        error += f", a redirect to {answer.headers.get('location', 'nowhere')!r:.{MOST_TOLD}} that is not followed"
    error += f": {words}" if words else "."
    if answer.status_code in AWAY:
        return unavailable(error)
    return dead(error) if answer.status_code == HTTPStatus.GONE else failed(error)


def rest_after(answer: httpx.Response) -> float:
    """
    Return for how long the ``Retry-After`` of an answer asks, within reason.

    Units: seconds; 0 where it asks for nothing, or can't be read.
    """
    text = answer.headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text).astimezone(UTC) - datetime.now(UTC)).total_seconds()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(0.0, seconds), LONGEST_REST)  # in this order "nan" is 0, too


def beginning(answer: httpx.Response) -> str:
    """
    Read an answer to its end if it is near, and return its first words as one line of text.
    """
    read = bytearray()
    with suppress(*egress.BROKEN):
        for piece in answer.iter_raw():
            read += piece
            if len(read) > MOST_READ:
                break
    text = bytes(read[: 4 * MOST_TOLD]).decode(errors="replace")
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:MOST_TOLD]
