"""
Measure synchronous moves beside their peers on one PostgreSQL and print one table.

    python benchmarks/sync.py [--rounds N] [--moves N] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import facts, report
from harness.catalogue import KITS
from harness.crew import Crew, crew
from harness.program import choose, run_program
from harness.rounds import Result, bulk_jobs, contention_notes, run_rounds, sequential_jobs
from harness.servers import ServerUnavailable, postgres, redis

RESULTS = Path(__file__).resolve().parent / "results"
THREADS, ATTEMPTS = 8, 100
BULK_ROUNDS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the benchmark and return the exit status.
    """
    return run_program("benchmarks/sync.py", parse(arguments), measure)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """
    Read the command line.
    """
    parser = argparse.ArgumentParser(prog="benchmarks/sync.py", description=__doc__.splitlines()[1])
    parser.add_argument("--rounds", type=int, help="measured rounds after the warm-up (7; 2 with --quick)")
    parser.add_argument("--moves", type=int, help="moves of each contender in a round (500; 100 with --quick)")
    parser.add_argument("--bulk-rows", type=int, help="rows of the set-wise part (10000; 1000 with --quick)")
    parser.add_argument("--quick", action="store_true", help="a short run that shows everything works; not for citing")
    parser.add_argument("--json", type=Path, default=RESULTS / "sync.json", help="where to write the raw rounds")
    parser.add_argument("--only", help="kits to run, separated by commas: " + ", ".join(kit.name for kit in KITS))
    parser.add_argument("--refresh", action="store_true", help="build the peers' environments again (newest releases)")
    options = parser.parse_args(arguments)
    defaults = (2, 100, 1000) if options.quick else (7, 500, 10_000)
    for name, value in zip(("rounds", "moves", "bulk_rows"), defaults, strict=True):
        if getattr(options, name) is None:
            setattr(options, name, value)
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, found {getattr(options, name)}")
    choose(parser, options, "only", {kit.name for kit in KITS})
    return options


def measure(options: argparse.Namespace, stack: ExitStack) -> tuple[dict[str, Any], str]:
    """
    Start the servers and the workers, run every phase, and compose the outcome.
    """
    machine = facts.machine()
    # Kept beside the figures: a contender's row has room for one line, the worker's log for the traceback.
    log = options.json.with_suffix(".log")
    server = stack.enter_context(postgres())
    redis_url = stack.enter_context(optional_redis())
    kits = [kit for kit in KITS if kit.name in options.only]
    team = stack.enter_context(crew(kits, server, redis_url, log, refresh=options.refresh))
    sequential = run_rounds(sequential_jobs(team, options.moves), options.rounds, "single moves")
    bulk = run_rounds(bulk_jobs(team, options.bulk_rows), min(options.rounds, BULK_ROUNDS), "bulk")
    document = {
        "machine": {**machine, "load_average_after": facts.load()},
        "postgres": server.describe(),
        "run": {"rounds": options.rounds, "moves": options.moves, "bulk_rows": options.bulk_rows},
        "versions": {member.kit.name: member.versions for member in team.members},
        "rounds": raw(sequential),
        "bulk_rounds": raw(bulk),
        "contention": contention_notes(team, THREADS, ATTEMPTS),
        "targets": [target.judge({**sequential, **bulk}) for target in report.TARGETS],
        "like_for_like": [target.judge(sequential) for target in report.LIKE_FOR_LIKE],
        "doubts": report.doubts(sequential, machine, is_quick=options.quick),
        "missing": missing(team, options.only),
    }
    return document, report.table(document, sequential, bulk)


def raw(results: dict[str, Result]) -> dict[str, Any]:
    """
    Return every round of every contender.
    """
    return {key: asdict(result) for key, result in results.items()}


def missing(team: Crew, wanted: set[str]) -> dict[str, str]:
    """
    Name the kits that did not start, and those that were left out on purpose.
    """
    titles = {kit.name: kit.title for kit in KITS}
    left_out = {titles[name]: "left out by --only" for name in titles if name not in wanted}
    return {**{titles[name]: reason for name, reason in team.missing.items()}, **left_out}


@contextmanager
def optional_redis() -> Iterator[str | None]:
    """
    Run Redis where it is installed; without it only the contenders that need it are missing.
    """
    with ExitStack() as stack:
        try:
            url: str | None = stack.enter_context(redis())
        except ServerUnavailable as error:
            print(f"benchmarks/sync.py: {error}", file=sys.stderr)
            url = None
        yield url


if __name__ == "__main__":
    sys.exit(main())
