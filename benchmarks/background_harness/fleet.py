"""
Start the worker processes of an engine, watch their memory, end them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from background_harness.contender import Program
from harness.contender import WrongResult

GRACE_SECONDS = 5.0
PR_SET_PDEATHSIG = 1
LOG_TAIL = 600


class Fleet:
    """
    The running workers of one engine; each leads a session of its own.
    """

    def __init__(self, programs: Sequence[Program], log: IO[bytes]) -> None:
        """
        Start them all.
        """
        self._log = log
        self._processes = [
            subprocess.Popen(  # noqa: S603 (a worker named by its kit, no shell)
                [sys.executable, *program.arguments],
                env={**os.environ, **program.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            for program in programs
        ]

    def check(self) -> None:
        """
        Refuse to go on without a worker.

        Raises: WrongResult with the worker's last words.
        """
        for process in self._processes:
            if (status := process.poll()) is not None:
                self._log.seek(0)
                words = self._log.read().decode(errors="replace")[-LOG_TAIL:]
                raise WrongResult(f"a worker ended with status {status}: {words.strip()}")

    def wait(self, seconds: float) -> None:
        """
        Wait for workers that end by themselves.
        """
        for process in self._processes:
            process.wait(timeout=seconds)

    def memory(self) -> tuple[dict[int, int], int]:
        """
        Return the memory of the workers and everything they started.

        Shape: (RSS of each process by pid, PSS of all together). Units: kB.
        """
        sessions = {process.pid for process in self._processes}
        rss: dict[int, int] = {}
        pss = 0
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and _session_of(folder) in sessions:
                with suppress(OSError):
                    rss[int(folder.name)] = _kilobytes(folder / "status", "VmRSS:")
                    pss += _kilobytes(folder / "smaps_rollup", "Pss:")
        return rss, pss

    def end(self) -> None:
        """
        Ask every worker to stop; after a while end it with all it started.
        """
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=GRACE_SECONDS)
            # The session outlives its leader while a child of it runs.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def fleet(programs: Sequence[Program]) -> Iterator[Fleet]:
    """
    Run workers for the length of the block.
    """
    with tempfile.TemporaryFile() as log:
        running = Fleet(programs, log)
        try:
            yield running
        finally:
            running.end()
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace"))


def _die_with_parent() -> None:
    # A controller that is killed leaves no workers behind; only Linux knows how.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _session_of(folder: Path) -> int:
    try:
        # The name may hold blanks and parentheses; what follows the last one is fixed.
        return int((folder / "stat").read_text().rpartition(")")[2].split()[3])
    except (OSError, IndexError):
        return 0


def _kilobytes(path: Path, key: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    return 0
