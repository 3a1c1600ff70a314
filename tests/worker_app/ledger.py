"""
Write down which hook ran in which process, in a file that no rollback and no crash takes back.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Names the environment variable that names the file.
VARIABLE = "DL_LEDGER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """
    Hold one line: a hook began (``start``), returned (``stop``) or raised (``raised``).

    ``at`` is the system's monotonic clock, which all processes share.
    """

    hook: str
    phase: str
    job: int
    transition_id: str
    pid: int
    at: float


class Ledger:
    """
    Read the file, or add to it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def add(self, entry: Entry) -> None:
        """
        Append one line in one write, so that lines of several processes never mix.
        """
        line = json.dumps({name: getattr(entry, name) for name in Entry.__slots__}) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def entries(
        self, hook: str | None = None, phase: str | None = None, *, job: int | None = None, transition_id: Any = None
    ) -> list[Entry]:
        """
        List the lines, oldest first, that agree with what is given.
        """
        wanted = {"hook": hook, "phase": phase, "job": job}
        wanted["transition_id"] = None if transition_id is None else str(transition_id)
        text = self.path.read_text() if self.path.exists() else ""
        found = (Entry(**json.loads(line)) for line in text.splitlines())
        return [
            entry
            for entry in found
            if all(value is None or getattr(entry, name) == value for name, value in wanted.items())
        ]

    def count(self, hook: str, phase: str = "start", **wanted: Any) -> int:
        """
        Count how often a hook began, or came as far as `phase`.
        """
        return len(self.entries(hook, phase, **wanted))

    def overlaps(self) -> list[tuple[Entry, Entry]]:
        """
        List pairs of runs of one hook for one job of which the second began before the first had ended.

        A run that never ended, since its process was killed, overlaps with nothing.
        """
        pairs = []
        open_runs: dict[tuple[str, int], list[Entry]] = {}
        ended = {(entry.hook, entry.job, entry.pid): entry.at for entry in self.entries() if entry.phase != "start"}
        for entry in self.entries():
            runs = open_runs.setdefault((entry.hook, entry.job), [])
            if entry.phase != "start":
                open_runs[entry.hook, entry.job] = [run for run in runs if run.pid != entry.pid]
                continue
            pairs += [(run, entry) for run in runs if ended.get((run.hook, run.job, run.pid), 0.0) > entry.at]
            runs.append(entry)
        return pairs


def ledger() -> Ledger:
    """
    Return the ledger that the environment names.

    Raises: KeyError when it names none.
    """
    return Ledger(os.environ[VARIABLE])


def noted(hook: Callable[..., Any]) -> Callable[..., Any]:
    """
    Make a hook write down that it began and how it ended; without a ledger it just runs.
    """

    @functools.wraps(hook)
    def run(instance: Any, **keywords: Any) -> Any:
        if VARIABLE not in os.environ:
            return hook(instance, **keywords)

        def note(phase: str) -> None:
            ledger().add(
                Entry(
                    hook=hook.__name__,
                    phase=phase,
                    job=instance.pk,
                    transition_id=str(keywords["transition_id"]),
                    pid=os.getpid(),
                    at=time.monotonic(),
                )
            )

        note("start")
        try:
            answer = hook(instance, **keywords)
        except BaseException:
            note("raised")
            raise
        note("stop")
        return answer

    return run
