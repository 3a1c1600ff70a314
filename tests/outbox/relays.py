"""
Run real relay processes against the test databases, and look at what they leave there.

A relay leads a session of its own; whatever it started ends with the `relay` block. Tests need committed rows:
`@pytest.mark.django_db(transaction=True)`, and the fixture `sights_are_kept`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection

from django_logic.outbox.models import DeliveryState, OutboxDelivery
from django_logic.wakeup import EVENTS
from tests.app.models import Ticket
from tests.outbox import relay_app
from tests.worker import nursery
from tests.worker.altered import altered
from tests.worker.gates import PATIENCE
from tests.worker.harness import LOG_TAIL, ROOT, Worker, database_facts
from tests.worker.looks import sql, until

__all__ = [
    "OFTEN",
    "SELDOM",
    "Relay",
    "ask",
    "deliveries",
    "hear_probes",
    "is_all_sent",
    "relay",
    "run_relay",
    "tickets",
]

#: How often relays look without a word: all the time, or so seldom that only a word explains what is quick.
OFTEN, SELDOM = ("--poll", "0.1"), ("--poll", "30")
LISTENING = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND query LIKE 'LISTEN ' || %s || '%%'"


class Relay(Worker):
    """
    Speak to one `dl_relay` of a test.
    """

    def listener(self) -> int | None:
        """
        Return the session that listens for it.
        """
        found = sql(LISTENING, self.name, EVENTS.name)
        return found[0][0] if found else None

    def wait_ready(self, seconds: float = PATIENCE) -> Relay:
        """
        Wait until it listens, and return it.

        Raises: AssertionError when it ends, or is not ready in time.
        """

        def is_ready() -> bool:
            assert self.is_running(), f"The relay ended before it was ready:\n{self.log}"
            return self.listener() is not None

        until(is_ready, seconds)
        return self

    def wait_said(self, text: str, seconds: float = PATIENCE) -> Relay:
        """
        Wait until its log holds a text, and return it.
        """
        until(lambda: text in self.log, seconds)
        return self


@contextmanager
def relay(
    *arguments: str,
    logic: Mapping[str, Any] | None = None,
    databases: Mapping[str, Mapping[str, Any]] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Iterator[Relay]:
    """
    Start `dl_relay`, and end it with the block.

    `logic` is its DJANGO_LOGIC, `databases` gives aliases other facts than the test databases have, and `constants`
    names constants of modules that are other ones there. An error inside the block gets the log as a note.
    """
    name = f"dl-{uuid.uuid4().hex[:12]}"
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    overlay = altered(constants, DATABASES=database_facts(name, databases or {}), DJANGO_LOGIC=dict(logic or {}))
    overlay["INSTALLED_APPS"].append(relay_app.__name__)
    with (folder / "log").open("ab") as log:
        started = Relay(nursery.start(["dl_relay", *arguments], environment(overlay), log.fileno()), folder, name)
    try:
        yield started
    except BaseException as error:
        error.add_note(f"The log of the relay {started.pid}:\n{started.log[-LOG_TAIL:]}")
        raise
    finally:
        started.close()
        shutil.rmtree(folder)


def environment(overlay: Mapping[str, Any]) -> dict[str, str]:
    """
    Describe the process of a relay: it imports from where this run does.
    """
    folders = [path for path in (str(ROOT), str(ROOT / "src")) if path in sys.path]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "PYTHONUNBUFFERED": "1",
        "DL_WORKER_SETTINGS": json.dumps(overlay),
    }


def run_relay(*arguments: str, logic: Mapping[str, Any] | None = None) -> tuple[int, str]:
    """
    Run `dl_relay` to its end, and return its exit status and what it has said.
    """
    with relay(*arguments, logic=logic) as running:
        return running.wait(), running.log.strip()


def hear_probes(count: int) -> None:
    """
    Listen beside relays until they have tried so often to hear themselves.
    """
    facts = connection.get_connection_params()
    wanted = {name: facts[name] for name in ("host", "port", "user", "password", "dbname") if facts.get(name)}
    with psycopg.connect(**wanted, autocommit=True) as session:
        session.execute(f"LISTEN {EVENTS.name}")
        heard = [word for word in session.notifies(timeout=PATIENCE, stop_after=count) if "probe" in word.payload]
    assert len(heard) == count


def tickets(count: int) -> list[Ticket]:
    """
    Make objects to be moved.
    """
    return [Ticket.objects.create() for _count in range(count)]


def ask(ticket: Ticket, *reasons: str) -> None:
    """
    Move an object once for each reason, which tells the subscriber what to do.
    """
    process: Any = Ticket.objects.get(pk=ticket.pk)
    for reason in reasons:
        process.process.touch(reason=reason)


def deliveries(ticket: Ticket | None = None, **wanted: Any) -> Sequence[OutboxDelivery]:
    """
    List deliveries in the order they were written.
    """
    keys = {} if ticket is None else {"key": str(ticket.pk)}
    return list(OutboxDelivery.objects.filter(**keys, **wanted).order_by("id"))


def is_all_sent(*only: Ticket) -> Callable[[], bool]:
    """
    Return a question: whether nothing is left to deliver, of some objects or at all.
    """
    keys = {"key__in": [str(ticket.pk) for ticket in only]} if only else {}
    return lambda: not OutboxDelivery.objects.filter(**keys).exclude(state=DeliveryState.SENT).exists()
