"""
Run the whole suite on one database after the other and say what was skipped.

Usage: python -m tests.run_everywhere [--on NAME ...] [pytest's own arguments]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from tests.servers import NOTHING_TESTED, STARTERS

#: How many databases are tested at a time, after the first.
SIDE_BY_SIDE = 2
COUNT = re.compile(r"(\d+) (passed|failed|skipped|deselected|xfailed|xpassed|errors?|warnings?)\b")
SUMMARY = re.compile(r"(?:\d+ \w+|no tests ran).* in [\d.]+s(?: \([\d:]+\))?")
COLOUR = re.compile(r"\x1b\[[\d;]*m")


class Result(StrEnum):
    """
    Name how a run on one database ended.
    """

    PASSED = "passed"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


@dataclass(slots=True)
class Run:
    """
    Hold what pytest said in the end about one database.
    """

    database: str
    result: Result = Result.FAILED
    closing: str = "pytest printed no summary"
    counts: Counter[str] = field(default_factory=Counter)

    def read(self, line: str) -> None:
        """
        Keep a line of pytest's output when it closes the run.
        """
        plain = COLOUR.sub("", line).strip(" =!\n")
        if NOTHING_TESTED in plain:
            self.result, self.closing = Result.SKIPPED, plain.partition(NOTHING_TESTED)[2].strip()
        elif SUMMARY.fullmatch(plain):
            self.closing = plain
            self.counts = Counter(
                {name.rstrip("s") if "error" in name else name: int(n) for n, name in COUNT.findall(plain)}
            )

    def end(self, status: int) -> None:
        """
        Judge the run by pytest's exit status: a run that tested nothing has not passed.
        """
        if status != 0:
            self.result = Result.FAILED
        elif self.counts["passed"]:
            self.result = Result.PASSED


def run_on(database: str, arguments: list[str], mark: str = "") -> Run:
    """
    Run pytest on one database, passing its output on as it comes, each line behind a mark.
    """
    run = Run(database)
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    command = [sys.executable, "-m", "pytest", *colour, *arguments]
    environment = {**os.environ, "DL_DATABASE": database}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(f"{mark}{line}", end="", flush=True)
            run.read(line)
    run.end(process.returncode)
    return run


def main() -> int:
    """
    Run on every database asked for and print one line for each, then the sum in pytest's words.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", action="append", choices=tuple(STARTERS), help="a database; may be given again")
    options, arguments = parser.parse_known_args()
    # A server that is given by its URL is one database, whatever its kind.
    given = ["given"] if "DL_DATABASE_URL" in os.environ else []
    first, *others = given or options.on or STARTERS
    print(f"\n{first}", flush=True)
    runs = [run_on(first, arguments)]
    # The first one has the machine for itself, since its workers are killed by the clock; the others share it.
    with ThreadPoolExecutor(max_workers=SIDE_BY_SIDE) as pool:
        runs += pool.map(lambda name: run_on(name, arguments, f"{name}: "), others)
    print()
    for run in runs:
        print(f"{run.database:<10} {run.result:<8} {run.closing}")
    total = sum((run.counts for run in runs), Counter[str]())
    print(f"\ntotal: {total['passed']} passed, {total['failed'] + total['error']} failed, {total['skipped']} skipped")
    return int(any(run.result is Result.FAILED for run in runs))


if __name__ == "__main__":
    sys.exit(main())
