"""
Real workers and relays for the story: processes of their own, which end with their chapter and, whatever happens, with
the story.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar, cast

from django.conf import settings
from django.db import connection

from django_logic.background.explain import Code, explain
from django_logic.background.models import MessageQuerySet, TransitionMessage, Worker
from example import services
from example.shop.dispatch import printer
from example.shop.models import Order
from example.story.stage import NotAsTold, Stage

__all__ = ["Crew", "newest_row", "relay", "rows_of", "wait_for", "wait_until", "worker"]

T = TypeVar("T")
MANAGE = Path(services.__file__).with_name("manage.py")
PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.02


class Crew:
    """
    Know one worker of the story.
    """

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log = name, log

    def pid(self) -> int:
        """
        Return the pid of its parent process, as it says itself in the table of workers.
        """
        return wait_until(
            lambda: Worker.objects.filter(name=self.name).values_list("pid", flat=True).first(), "a worker"
        )

    def kill(self, order: Order) -> None:
        """
        Pull the plug: the worker and the child that works on an order die at once, and neither can say a word.
        """
        row = newest_row(order)
        for pid in {self.pid(), *printer.asked_by(row.transition_id)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # The server notices within moments that the session is gone, and gives its locks back.
        wait_until(lambda: explain(pks=[row.pk])[0].code is not Code.RUNNING or None, "the end of a session")


@contextmanager
def worker(stage: Stage, name: str, *more: str) -> Iterator[Crew]:
    """
    Run `dl_worker` for as long as the block runs.
    """
    words = ["dl_worker", "--queues", "parcels", "--name", name, *more]
    with running(stage, words, "--poll", "0.5", "--grace", "5") as log:
        yield Crew(name, log)


@contextmanager
def relay(stage: Stage, name: str) -> Iterator[None]:
    """
    Run `dl_relay` for as long as the block runs.
    """
    with running(stage, ["dl_relay", "--name", name], "--grace", "5"):
        yield


@contextmanager
def running(stage: Stage, words: Sequence[str], *hurry: str) -> Iterator[Path]:
    """
    Run a command for as long as the block runs, with options that the story does not speak of; give its log.

    Its keeper holds a pipe to this process: however the story ends, the command ends with it.
    """
    stage.typed(f"python example/manage.py {' '.join(words)} &")
    with tempfile.TemporaryDirectory(dir=settings.OUTSIDE_WORLD, ignore_cleanup_errors=True) as made:
        folder = Path(made, "server")
        folder.mkdir()
        keeper = subprocess.Popen(
            [sys.executable, "-I", str(services.KEEPER), str(folder)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        orders = cast("IO[bytes]", keeper.stdin)
        plan = services.Plan(serve=(sys.executable, str(MANAGE), *words, *hurry))
        orders.write(plan.as_line())
        orders.flush()
        log = folder / "server.log"
        try:
            yield log
        except NotAsTold:
            with suppress(OSError):
                stage.block(f"What {words[0]} said last:\n{log.read_text(errors='replace')[-3000:]}")
            raise
        finally:
            keeper.communicate()


def environment() -> dict[str, str]:
    """
    Return what a worker needs to find this very code, database and outside world from any folder.
    """
    facts = connection.settings_dict
    url = services.database_url({**facts, "NAME": Path(facts["NAME"]).resolve()}) if is_file(facts) else None
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path),
        "SHOP_OUTSIDE_WORLD": str(settings.OUTSIDE_WORLD),
        **({"DATABASE_URL": url} if url else {}),
    }


def is_file(facts: dict[str, object]) -> bool:
    """
    Tell whether a database is a file, whose path may be relative.
    """
    return str(facts["ENGINE"]).endswith("sqlite3")


def wait_until(condition: Callable[[], T | None], what: str) -> T:
    """
    Ask again until there is an answer.

    Raises: NotAsTold when there is none in time.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (answer := condition()) is None:
        if time.monotonic() > deadline:
            raise NotAsTold(f"{what} was expected within {PATIENCE_SECONDS:.0f} seconds and did not come.")
        time.sleep(POLL_SECONDS)
    return answer


def wait_for(order: Order, status: str) -> str:
    """
    Wait until an order is in a state and no row of it is open; return the state.
    """

    def is_there() -> str | None:
        order.refresh_from_db()
        is_open = rows_of(order).open().exists()
        return order.status if order.status == status and not is_open else None

    return wait_until(is_there, f"order {order.pk} in state {status!r}")


def rows_of(order: Order) -> MessageQuerySet:
    """
    Return all rows of an order, those that follow included.
    """
    return TransitionMessage.objects.for_instance(order)


def newest_row(order: Order) -> TransitionMessage:
    """
    Return the row of an order's last background call.
    """
    return rows_of(order).transitions().order_by("-id")[0]
