"""
Measure what events cost and how they are delivered, beside other outboxes, on one PostgreSQL, in one table.

    python benchmarks/events.py [--quick] [--rounds N] [--only KITS] [--phases PHASES] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from background_harness.team import team
from events_harness import report, targets
from events_harness.catalogue import KITS
from events_harness.phases import FULL, PHASES, QUICK, Plan, Run
from harness import facts
from harness.program import choose, run_program
from harness.servers import postgres
from sync import optional_redis

RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the benchmark and return the exit status.
    """
    return run_program("benchmarks/events.py", parse(arguments), measure)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """
    Read the command line.
    """
    parser = argparse.ArgumentParser(prog="benchmarks/events.py", description=__doc__.splitlines()[1])
    parser.add_argument("--quick", action="store_true", help="a minute that shows everything works; not for citing")
    parser.add_argument("--rounds", type=int, help=f"rounds of moves ({FULL.rounds}; 1 with --quick)")
    parser.add_argument("--json", type=Path, default=RESULTS / "events.json", help="where to write every round")
    parser.add_argument("--only", help="kits to run, separated by commas: " + ", ".join(kit.name for kit in KITS))
    parser.add_argument("--phases", help="phases to run, separated by commas: " + ", ".join(PHASES))
    parser.add_argument("--refresh", action="store_true", help="build the peers' environments again (newest releases)")
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds must be at least 1, found {options.rounds}")
    choose(parser, options, "only", {kit.name for kit in KITS})
    choose(parser, options, "phases", set(PHASES))
    return options


def measure(options: argparse.Namespace, stack: ExitStack) -> tuple[dict[str, Any], str]:
    """
    Start the servers and the controllers, run the phases, and compose the outcome.
    """
    machine = facts.machine()
    plan = QUICK if options.quick else FULL
    if options.rounds is not None:
        plan = replace(plan, rounds=options.rounds)
    log = options.json.with_suffix(".log")
    server = stack.enter_context(postgres())
    redis_url = stack.enter_context(optional_redis())
    kits = [kit for kit in KITS if kit.name in options.only]
    crew = stack.enter_context(
        team(kits, server, redis_url, log, refresh=options.refresh, settings="events_harness.settings")
    )
    run = Run(crew, plan, redis_url)
    for name, phase in PHASES.items():
        if name in options.phases:
            phase(run)
    facts_of_run = {
        "machine": {**machine, "load_average_after": facts.load()},
        "postgres": server.describe(),
        "run": asdict(plan),
        "versions": {member.kit.name: member.versions for member in crew.members},
        "missing": missing(crew.missing, options.only, run),
    }
    return outcome(run, plan, facts_of_run, is_quick=options.quick)


def outcome(run: Run, plan: Plan, document: dict[str, Any], *, is_quick: bool) -> tuple[dict[str, Any], str]:
    """
    Judge a run; return it as a document and as a table.
    """
    machine = document["machine"]
    load, cores = float(machine["load_average"][0]), int(machine["cores"])
    verdicts = targets.judge(run.board, plan)
    document |= {
        "labels": run.board.labels,
        "figures": {key: {name: asdict(one) for name, one in all_.items()} for key, all_ in run.board.figures.items()},
        "targets": [verdict.as_facts() for verdict in verdicts],
        "doubts": list(targets.doubts(run.board, load, cores, is_quick=is_quick)),
    }
    return document, report.table(document, run.board, plan, verdicts)


def missing(failed: dict[str, str], wanted: set[str], run: Run) -> dict[str, str]:
    """
    Name what did not start, what failed on the way, and what was left out on purpose.
    """
    titles = {kit.name: kit.title for kit in KITS}
    left_out = {titles[name]: "left out by --only" for name in titles if name not in wanted}
    return {**{titles[name]: reason for name, reason in failed.items()}, **run.board.problems(), **left_out}


if __name__ == "__main__":
    sys.exit(main())
