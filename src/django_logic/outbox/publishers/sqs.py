"""
Deliver events to a FIFO queue of Amazon SQS, over boto3.

A batch that was taken may hold messages that were not, so each is judged by its own entry of the answer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from boto3.session import Session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
from django.core.exceptions import ImproperlyConfigured

from django_logic.outbox.envelope import structured
from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import Undeliverable
from django_logic.outbox.publishers import Fate, Result, dead, failed, options, sent, unavailable

__all__ = ["SqsFifo"]

#: How many messages one request may hold.
MOST = 10
#: Bytes in one request; a newer queue takes more, and a single message above it is for the queue to judge.
ROOM = 256 * 1024
GROUP = re.compile(r"[!-~]{1,128}")
KEPT = ("config", "endpoint_url", "region_name", "service_name")
ARGUMENTS = frozenset(inspect.signature(Session.client).parameters) - {"self"}
#: Errors that say something of a message, not of the queue or of who asks. Codes come with and without a prefix.
HOPELESS = frozenset({"BatchRequestTooLong", "InvalidMessageContents", "InvalidParameterValue"})
GONE = frozenset(
    {
        "ExpiredToken",
        "InvalidAddress",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "NonExistentQueue",
        "OverLimit",
        "QueueDeletedRecently",
        "QueueDoesNotExist",
        "RequestExpired",
        "RequestThrottled",
        "RequestTimeout",
        "SignatureDoesNotMatch",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "UnrecognizedClientException",
    }
)
#: HTTP statuses that tell the same whatever the code: not allowed to, or too much at once. So do all from 500.
AWAY = frozenset({401, 403, 429})
Entry: TypeAlias = dict[str, Any]


class SqsFifo:
    """
    Send events to one queue, grouped by their keys; the queue drops what it got within the last five minutes.

    Region and credentials come from where boto3 finds them, unless ``region`` and ``config`` give them; ``config``
    holds further arguments of boto3's `Session.client`.
    """

    def __init__(
        self,
        queue_url: str,
        *,
        region: str = "",
        endpoint_url: str = "",
        timeout: float = 10.0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._queue_url = _judge_url("queue_url", queue_url)
        if not self._queue_url.endswith(".fifo"):
            raise options.refusal("SqsFifo", "queue_url", queue_url, "the URL of a FIFO queue, which ends with .fifo")
        seconds = options.seconds("SqsFifo", "timeout", timeout)
        self._arguments = options.pieces("SqsFifo", "config", config, KEPT)
        unknown = sorted(set(self._arguments) - ARGUMENTS)
        if unknown:
            raise options.refusal("SqsFifo", "config", unknown, "made of arguments of boto3's Session.client")
        # The relay tries again, so the library does not.
        patience = Config(connect_timeout=seconds, read_timeout=seconds, retries={"total_max_attempts": 1})
        self._arguments |= {"config": patience, "region_name": _judge_region(region)}
        if endpoint_url:
            self._arguments["endpoint_url"] = _judge_url("endpoint_url", endpoint_url)
        self._client: Any = None

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Send events in as few requests as they fit in, until the queue can't be reached.
        """
        results: dict[int, Result] = {}
        entries: list[Entry] = []
        for index, event in enumerate(events):
            try:
                entries.append(_entry(index, event))
            except Undeliverable as error:
                results[index] = dead(error)
        lost: Result | None = None
        for chunk in _chunks(entries):
            results |= self._send(chunk) if lost is None else _all(chunk, lost)
            lost = next((result for result in results.values() if result.fate is Fate.UNAVAILABLE), None)
        if lost is not None:
            # The next call looks for credentials anew.
            self.close()
        return [results[index] for index in range(len(events))]

    def close(self) -> None:
        """
        Close the connections.
        """
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _send(self, chunk: Sequence[Entry]) -> dict[int, Result]:
        try:
            if self._client is None:
                self._client = Session().client("sqs", **self._arguments)
            answer = self._client.send_message_batch(QueueUrl=self._queue_url, Entries=chunk)
        except BotoCoreError as error:
            return _all(chunk, unavailable(error))
        except ClientError as error:
            result = _judge_request(error)
            if result.fate is Fate.DEAD and len(chunk) > 1:
                # One message spoils the request, and the answer does not say which.
                return {index: one for entry in chunk for index, one in self._send([entry]).items()}
            return _all(chunk, result)
        results = _all(chunk, failed("SQS said nothing of the message."))
        results |= {int(entry["Id"]): sent() for entry in answer.get("Successful", ())}
        results |= {int(entry["Id"]): _judge_entry(entry) for entry in answer.get("Failed", ())}
        return results


def _entry(index: int, event: Event) -> Entry:
    return {
        "Id": str(index),
        "MessageBody": structured(event).decode(),
        "MessageAttributes": {"topic": {"DataType": "String", "StringValue": event.topic}},
        "MessageDeduplicationId": str(event.id),
        "MessageGroupId": _group(event),
    }


def _group(event: Event) -> str:
    """
    Return the group that events of one key share, in the letters and the length that SQS takes.
    """
    # An event without a key waits for no other.
    key = event.key or str(event.id)
    return key if GROUP.fullmatch(key) else f"sha256:{sha256(key.encode()).hexdigest()}"


def _chunks(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """
    Part entries into requests that hold neither too many nor too much.
    """
    chunk: list[Entry] = []
    room = ROOM
    for entry in entries:
        size = _size(entry)
        if chunk and (len(chunk) == MOST or size > room):
            yield chunk
            chunk, room = [], ROOM
        chunk.append(entry)
        room -= size
    if chunk:
        yield chunk


def _size(entry: Entry) -> int:
    """
    Return what SQS counts of a message: its body, and the names, types and values of its attributes.
    """
    attributes: Mapping[str, Mapping[str, str]] = entry["MessageAttributes"]
    texts = [text for name, value in attributes.items() for text in (name, *value.values())]
    return sum(len(text.encode()) for text in (entry["MessageBody"], *texts))


def _all(chunk: Sequence[Entry], result: Result) -> dict[int, Result]:
    return {int(entry["Id"]): result for entry in chunk}


def _judge_request(error: ClientError) -> Result:
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if _is_gone(code) or status in AWAY or status >= 500:
        return unavailable(error)
    return dead(error) if _name(code) in HOPELESS else failed(error)


def _judge_entry(entry: Mapping[str, Any]) -> Result:
    told = f"{entry['Code']}: {entry.get('Message', '')}"
    if _is_gone(entry["Code"]):
        return unavailable(told)
    return dead(told) if entry["SenderFault"] else failed(told)


def _is_gone(code: str) -> bool:
    # Whoever may not use the queue's key gets nothing in, whatever the message.
    return _name(code) in GONE or code.upper().startswith("KMS")


def _name(code: str) -> str:
    return code.rpartition(".")[2]


def _judge_region(region: str) -> str:
    try:
        found = region or Session().region_name
    except BotoCoreError as error:
        raise ImproperlyConfigured(f'DJANGO_LOGIC["OUTBOX_PUBLISHERS"]: SqsFifo refused: {error}.') from error
    return options.text("SqsFifo", "region", found)


def _judge_url(option: str, url: object) -> str:
    found = options.text("SqsFifo", option, url)
    if not found.startswith(("https://", "http://")):
        raise options.refusal("SqsFifo", option, url, "a URL like https://sqs.eu-central-1.amazonaws.com/…")
    return found
