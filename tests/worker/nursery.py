"""
Start processes from one that has imported Django and the driver already: nearly all a short-lived worker does is that.

The nursery has no settings, no connection and no thread, and holds nothing of this project but the way into
`tests.worker.manage`; each process that it starts sets Django up by itself. A process that needs another interpreter,
as by variables that are read as Python starts, is not for it.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from tests.worker import manage
from tests.worker.processes import end_with_starter

ROOT = Path(__file__).parents[2]
IMPORTED = (
    *("django.core.management", "django.core.checks", "django.db.models", "django.db.backends.postgresql.base"),
    *("django.http", "django.urls", "django.forms", "django.template", "django.contrib.auth.hashers", "psycopg"),
)
LARGEST_REQUEST = 1 << 18


class Started:
    """
    Stand for a process that the nursery has started, as `subprocess.Popen` does for one of its own.
    """

    def __init__(self, news: int) -> None:
        self._news = news
        self.returncode: int | None = None
        self.pid = int(self._line())

    def wait(self, seconds: float) -> int:
        """
        Wait for its end and return the exit status, negative for a signal.

        Raises: subprocess.TimeoutExpired.
        """
        if self.returncode is None:
            if not select.select([self._news], [], [], seconds)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), seconds)
            self.returncode = os.waitstatus_to_exitcode(int(self._line()))
            os.close(self._news)
        return self.returncode

    def poll(self) -> int | None:
        """
        Return the exit status, None while it runs.
        """
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            chunk = os.read(self._news, 1)
            if not chunk:
                raise RuntimeError("The nursery ended.")
            line += chunk
        return line


def start(arguments: Sequence[str], environment: Mapping[str, str], log: int) -> Started:
    """
    Start `tests.worker.manage` with these arguments as the leader of a session of its own, its output in `log`.
    """
    news, told = os.pipe()
    try:
        request = json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode()
        socket.send_fds(_nursery(environment["PYTHONPATH"]), [request], [log, told])
    finally:
        os.close(told)
    return Started(news)


@cache
def _nursery(python_path: str) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.worker.nursery", str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": python_path, "PYTHONUNBUFFERED": "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(_close, ours, process)
    return ours


def _close(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    # It ends when nobody can ask it any more.
    requests.close()
    process.wait()


def live(requests: socket.socket) -> None:
    """
    Serve requests until their sender is gone; in a process that was asked for, return what it is to run.
    """
    end_with_starter()
    for name in IMPORTED:
        import_module(name)
    # Nobody here asks how a keeper ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 2)
        if not request:
            return
        if not os.fork():
            requests.close()
            keep(json.loads(request), *descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)


def keep(request: Mapping[str, object], log: int, news: int) -> None:
    """
    Fork once more, tell the pid and, in the end, the status; return in the process that was asked for alone.
    """
    end_with_starter()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        os.write(news, b"%d\n" % pid)
        os.write(news, b"%d\n" % os.waitpid(pid, 0)[1])
        os._exit(0)
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    os.close(news)
    os.environ.clear()
    os.environ.update({**request["environment"], "DL_WORKER_STARTER": str(keeper)})  # type: ignore[dict-item]
    sys.argv = [manage.__file__, *request["arguments"]]  # type: ignore[misc]
    manage.main()


if __name__ == "__main__":
    live(socket.socket(fileno=int(sys.argv[1])))
