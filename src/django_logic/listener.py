"""
Hearing of new rows: LISTEN on a connection of its own, proved alive now and then.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from django.db import DatabaseError, InterfaceError, connections

from django_logic.wakeup import Channel, send

__all__ = ["Listener"]

#: Followed by the name of a channel, which is a constant of ours.
LISTEN = "LISTEN "
#: How often the connection is proved alive, how long an answer may take, and how long to wait after a failure.
PROVE_EVERY, ANSWER_WITHIN = 10.0, 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.0, 30.0
PROBE = "\x01probe:"


class Listener:
    """
    Listen for the words of a channel. Nothing it does may fail its owner, who polls without it.
    """

    def __init__(self, channel: Channel, alias: str, send_alias: str, name: str) -> None:
        self.channel, self.alias, self.send_alias = channel, alias, send_alias
        self.probe = f"{PROBE}{name}"
        self._wrapper: Any = None
        self._pause = FIRST_PAUSE
        self._try_at = 0.0
        self._probed_at: float | None = None
        self._prove_at = 0.0
        #: None until it is known.
        self.is_listening: bool | None = None

    @property
    def is_possible(self) -> bool:
        """
        Tell whether the database can notify at all.
        """
        return bool(connections[self.alias].vendor == "postgresql")

    def fileno(self) -> int | None:
        """
        Return what to wait on; None while there is no connection.
        """
        return None if self._wrapper is None else int(self._wrapper.connection.fileno())

    def attend(self) -> bool:
        """
        Connect if that is due, and prove the connection alive; return whether it was just made.

        What came before LISTEN was heard by nobody, so whoever is told of a new connection looks for itself.
        """
        now = time.monotonic()
        if not self.is_possible:
            return False
        is_new = self._wrapper is None
        if is_new and not (now >= self._try_at and self.connect()):
            return False
        if self._probed_at is not None and now - self._probed_at > ANSWER_WITHIN:
            self.call_deaf()
        if now >= self._prove_at:
            self._prove_at = now + PROVE_EVERY
            self.prove(now)
        return is_new

    def prove(self, now: float) -> None:
        """
        Send a word to oneself, once more where the session was dead; only one that went out is waited for.
        """
        for _session in range(2):
            try:
                send(self.channel, self.send_alias, self.probe)
            except (DatabaseError, InterfaceError):  # a database that is away is told of elsewhere
                connections[self.send_alias].close_if_unusable_or_obsolete()
            else:
                self._probed_at = now
                return

    def connect(self) -> bool:
        """
        Open the connection and LISTEN.
        """
        wrapper = connections.create_connection(self.alias)
        try:
            wrapper.ensure_connection()
            with wrapper.cursor() as cursor:
                cursor.execute(LISTEN + self.channel.name)
        except (DatabaseError, InterfaceError) as error:
            self.lose(error)
            with contextlib.suppress(Exception):
                wrapper.close()
            return False
        self._wrapper = wrapper
        self._prove_at, self._probed_at = 0.0, None
        return True

    def heard(self) -> set[str]:
        """
        Return the words that arrived since the last time, without waiting.
        """
        if self._wrapper is None:
            return set()
        try:
            words = words_of(self._wrapper.connection, self.channel.name)
        except Exception as error:  # the driver's own classes, which differ between psycopg 2 and 3
            self.lose(error)
            return set()
        if self.probe in words:
            self._probed_at = None
            self._pause = FIRST_PAUSE  # a connection that is lost at once each time is no reason to hurry
            self.is_listening = True
        return {word for word in words if not word.startswith(PROBE)}

    def lose(self, error: Exception) -> None:
        """
        Note that the connection is gone, and when to try again.
        """
        self.channel.logger.warning("LISTEN was lost (%s); rows are found by polling until it is back.", error)
        self.close()
        self.is_listening = False
        self._try_at = time.monotonic() + self._pause
        self._pause = min(LONGEST_PAUSE, max(1.0, self._pause * 2))

    def call_deaf(self) -> None:
        """
        Note that words do not arrive, as behind a pooler that shares sessions; said once.
        """
        self._probed_at = None
        if self.is_listening is not False:
            self.channel.logger.warning(
                "Notifications do not arrive on %r, as behind pgbouncer in transaction mode; rows are found by polling."
                " Name a direct connection by --listen-database for wake-ups within milliseconds.",
                self.alias,
            )
        self.is_listening = False

    def close(self) -> None:
        """
        Close the connection.
        """
        if self._wrapper is not None:
            with contextlib.suppress(Exception):
                self._wrapper.close()
        self._wrapper = None


def words_of(connection: Any, channel: str) -> set[str]:
    """
    Read the notifications that have arrived, from either driver.
    """
    if hasattr(connection, "pgconn"):
        connection.pgconn.consume_input()
        words = set()
        while (word := connection.pgconn.notifies()) is not None:
            if word.relname.decode() == channel:
                words.add(word.extra.decode())
        return words
    connection.poll()
    found = {word.payload for word in connection.notifies if word.channel == channel}
    connection.notifies.clear()
    return found
