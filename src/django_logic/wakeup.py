"""
A word to idle processes that a row is there; it may be lost, since they look for themselves every few seconds.

It is sent after the commit: inside a transaction PostgreSQL makes all who notify commit one after another.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error, connections, transaction

__all__ = ["EVENTS", "WORK", "Channel", "notify", "notify_after_commit", "once_after_commit", "send", "wakeup_pipe"]


@dataclass(frozen=True, slots=True)
class Channel:
    """
    Name one channel of PostgreSQL's, and the logger of those who listen to it.
    """

    name: str
    logger_name: str

    @property
    def logger(self) -> logging.Logger:
        """
        Return the logger.
        """
        return logging.getLogger(self.logger_name)


#: Words are names of queues that have work.
WORK = Channel("django_logic_work", "django-logic.worker")
#: Words say that there are events to deliver.
EVENTS = Channel("django_logic_events", "django-logic.relay")

#: Tells whoever listens.
NOTIFY = "SELECT PG_NOTIFY(%s, %s)"
#: The same, whose commit does not wait for the disk: a crash that loses the word ends those who listen, too.
NOTIFY_QUIETLY = f"{NOTIFY}, SET_CONFIG('synchronous_commit', 'off', true)"


@dataclass(frozen=True, slots=True)
class Word:
    """
    Hold one notification until the commit.
    """

    channel: Channel
    alias: str
    text: str

    def __call__(self) -> None:
        notify(self.channel, self.alias, self.text)


def notify_after_commit(channel: Channel, alias: str, text: str) -> None:
    """
    Send a word once the open transaction is committed; one a transaction and text is enough.
    """
    if connections[alias].vendor == "postgresql":
        once_after_commit(alias, Word(channel, alias, text))


def once_after_commit(alias: str, word: Callable[[], None]) -> None:
    """
    Call a word, one that equals others which say the same, after the commit of the open transaction, or now.
    """
    # One that waits already is lost only if a savepoint is rolled back that this call is made in, too.
    if not any(entry[1] == word for entry in connections[alias].run_on_commit):
        transaction.on_commit(word, using=alias, robust=True)


def notify(channel: Channel, alias: str, text: str) -> None:
    """
    Send a word now; a database that can't take it costs some seconds and nothing else.
    """
    if connections[alias].vendor != "postgresql":
        return
    try:
        send(channel, alias, text)
    except Error as error:
        channel.logger.warning("Nobody was woken by %r (%s); they look for themselves soon.", text, error)


def send(channel: Channel, alias: str, text: str) -> None:
    """
    Send a word to everybody who listens.
    """
    # In an open transaction the setting would speak for all of it.
    statement = NOTIFY if connections[alias].in_atomic_block else NOTIFY_QUIETLY
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, [channel.name, text])


def wakeup_pipe() -> tuple[int, int]:
    """
    Make a pipe for wake-ups; neither end ever blocks.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    return reader, writer
