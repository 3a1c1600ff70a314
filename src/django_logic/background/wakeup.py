"""
A word to idle workers that a row is there; it may be lost, since they look for themselves every few seconds.

It is sent after the commit: inside a transaction PostgreSQL makes all who notify commit one after another.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from django.db import DatabaseError, connections, transaction

__all__ = ["CHANNEL", "notify", "notify_after_commit", "send"]

logger = logging.getLogger("django-logic.worker")

CHANNEL = "django_logic_work"
#: Tells whoever listens which queue has work.
NOTIFY = "SELECT PG_NOTIFY('django_logic_work', %s)"
#: The same, whose commit does not wait for the disk: a crash that loses the word ends those who listen, too.
NOTIFY_QUIETLY = f"{NOTIFY}, SET_CONFIG('synchronous_commit', 'off', true)"


@dataclass(frozen=True, slots=True)
class Word:
    """
    Hold one notification until the commit.
    """

    alias: str
    queue: str

    def __call__(self) -> None:
        notify(self.alias, self.queue)


def notify_after_commit(alias: str, queue: str) -> None:
    """
    Wake the workers of a queue once the open transaction is committed; one word a transaction and queue is enough.
    """
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return
    word = Word(alias, queue)
    # One that waits already is lost only if a savepoint is rolled back that this call is made in, too.
    if not any(entry[1] == word for entry in connection.run_on_commit):
        transaction.on_commit(word, using=alias, robust=True)


def notify(alias: str, queue: str) -> None:
    """
    Send the word; a database that can't take it costs some seconds and nothing else.
    """
    if connections[alias].vendor != "postgresql":
        return
    try:
        send(alias, queue)
    except DatabaseError as error:
        logger.warning("The workers of %s were not woken (%s); they look for themselves soon.", queue, error)


def send(alias: str, word: str) -> None:
    """
    Send a word to everybody who listens.
    """
    # In an open transaction the setting would speak for all of it.
    statement = NOTIFY if connections[alias].in_atomic_block else NOTIFY_QUIETLY
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, [word])
