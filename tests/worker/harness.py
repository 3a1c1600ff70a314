"""
Run real worker processes against the test databases, and look at what they leave there.

A worker leads a session of its own; whatever it started ends with the `worker` block. Tests need committed rows:
`@pytest.mark.django_db(transaction=True)`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from django.db import OperationalError, connections

from tests.worker import nursery, processes
from tests.worker.gates import PATIENCE
from tests.worker.looks import is_held, open_rows, row, skip_pause, sql, until
from tests.worker.nursery import Started
from tests.worker_app.process import QUEUE

__all__ = ["Worker", "database_facts", "is_held", "open_rows", "row", "skip_pause", "sql", "until", "worker"]

ROOT = Path(__file__).parents[2]
LOG_TAIL = 6000
#: What Django needs to know of a database; the rest of its entry is about tests.
CONNECTION_FACTS = frozenset(
    {
        *(
            "ENGINE",
            "NAME",
            "USER",
            "PASSWORD",
            "HOST",
            "PORT",
            "OPTIONS",
            "TIME_ZONE",
            "AUTOCOMMIT",
            "ATOMIC_REQUESTS",
        ),
        *("CONN_MAX_AGE", "CONN_HEALTH_CHECKS", "DISABLE_SERVER_SIDE_CURSORS"),
    }
)


class Worker:
    """
    Speak to one `dl_worker` of a test.
    """

    def __init__(self, process: subprocess.Popen[bytes] | Started, folder: Path, name: str) -> None:
        self.pid = process.pid
        self.folder, self.name = folder, name
        self.health_file = folder / "health"
        self._process = process

    @property
    def log(self) -> str:
        """
        Return what it and its children have printed.
        """
        return (self.folder / "log").read_text(errors="replace")

    def is_running(self) -> bool:
        """
        Tell whether the parent process has not ended.
        """
        return self._process.poll() is None

    def children(self) -> list[int]:
        """
        List the pids of its children, the oldest first.
        """
        return processes.children_of(self.pid)

    def members(self) -> list[int]:
        """
        List the pids of all processes that came from it, orphans included.
        """
        return processes.members_of(self.pid)

    def sessions(self) -> list[int]:
        """
        List the pids of its sessions on PostgreSQL, in whichever database, found by the name its settings give them.
        """
        named = sql("SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s", f"{self.name}%")
        return [pid for (pid,) in named]

    def wait_ready(self, seconds: float = PATIENCE) -> Worker:
        """
        Wait until its health file is there, and return the worker.

        Raises: AssertionError when it ends, or is not ready in time.
        """

        def is_ready() -> bool:
            if not self.is_running():
                raise AssertionError(f"The worker ended with status {self._process.returncode} before it was ready.")
            return self.health_file.exists()

        until(is_ready, seconds)
        return self

    def term(self) -> None:
        """
        Ask it to stop, as a service manager does.
        """
        processes.send(self.pid, signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """
        Send the parent process another signal.
        """
        processes.send(self.pid, number)

    def kill9(self) -> None:
        """
        Kill the parent process alone.
        """
        processes.send(self.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)

    def kill9_group(self) -> None:
        """
        Kill the parent and everything that came from it, as the end of a container does.
        """
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        # Who left the process group, or was forked meanwhile, is still in the session.
        while members := self.members():
            for pid in members:
                processes.send(pid, signal.SIGKILL)
        self._process.wait(PATIENCE)

    def wait(self, seconds: float = PATIENCE) -> int:
        """
        Wait for its end and return the exit status, negative for a signal.

        Raises: AssertionError when it still runs.
        """
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The worker still runs after {seconds:g} seconds.") from None

    def stacks(self) -> str:
        """
        Have every process write its stack into the log, and return what they have written.
        """
        before = len(self.log)
        for pid in self.members():
            with (self.folder / "log").open("a") as log:
                log.write(f"-- process {pid}\n")
            processes.send(pid, signal.SIGUSR2)
            # Nobody says when it is done; one after the other, so that the lines do not mix.
            time.sleep(0.1)
        return self.log[before:]

    def close(self) -> None:
        """
        End whatever is left of it, its sessions on the server included.
        """
        self.kill9_group()
        if connections["default"].vendor == "postgresql":
            # A test may have left the server down, and then there is nothing to end.
            with suppress(OperationalError):
                until(self._end_sessions)

    def _end_sessions(self) -> bool:
        return not [sql("SELECT pg_terminate_backend(%s)", pid) for pid in self.sessions()]


@contextmanager
def worker(
    queues: str = QUEUE,
    concurrency: int = 1,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    databases: Mapping[str, Mapping[str, Any]] | None = None,
    points: Mapping[str, Any] | None = None,
) -> Iterator[Worker]:
    """
    Start `dl_worker` as a process group of its own, and end all of it with the block.

    `settings` are JSON values over those of the tests, `databases` gives aliases other facts than the test databases
    have, and `points` says what happens at the engine's test points. A worker with variables of its own, `env`, gets an
    interpreter of its own; any other comes from the nursery. An error inside the block gets the log as a note.
    """
    name = f"dl-{uuid.uuid4().hex[:12]}"
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    overlay = {"DATABASES": database_facts(name, databases or {}), **(settings or {})}
    environment = {**os.environ, **_environment(overlay, points), **(env or {})}
    command = ["dl_worker", "--queues", queues, "--concurrency", str(concurrency)]
    command += ["--health-file", str(folder / "health"), *args]
    with (folder / "log").open("ab") as log:
        started = Worker((_start if env else nursery.start)(command, environment, log.fileno()), folder, name)
    try:
        yield started
    except BaseException as error:
        error.add_note(f"The log of the worker {started.pid}:\n{started.log[-LOG_TAIL:]}")
        error.add_note(f"Where its processes are now:\n{started.stacks()}")
        raise
    finally:
        started.close()
        shutil.rmtree(folder)


def database_facts(name: str, others: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """
    Describe the databases that this process uses now, for another process that calls itself `name` there.
    """
    described = {}
    for alias in connections:
        known = connections[alias].settings_dict
        facts = {key: value for key, value in known.items() if key in CONNECTION_FACTS} | dict(others.get(alias, {}))
        if connections[alias].vendor == "postgresql":
            facts["OPTIONS"] = {**facts.get("OPTIONS", {}), "application_name": name}
        described[alias] = facts
    return described


def _start(command: Sequence[str], environment: Mapping[str, str], log: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.worker.manage", *command],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _environment(overlay: Mapping[str, Any], points: Mapping[str, Any] | None) -> dict[str, str]:
    # The very folders this run imports from: the sources, or only the tests where a wheel is tested.
    folders = [path for path in (str(ROOT), str(ROOT / "src")) if path in sys.path]
    made = {
        "PYTHONPATH": os.pathsep.join(folders),
        "PYTHONUNBUFFERED": "1",
        "DL_WORKER_STARTER": str(os.getpid()),
        "DL_WORKER_SETTINGS": json.dumps(overlay),
    }
    return {**made, "DL_TEST_POINTS": json.dumps(points)} if points else made
