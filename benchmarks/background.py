"""
Measure background engines beside their peers and the database's own limit, on one PostgreSQL, in one table.

    python benchmarks/background.py [--quick] [--rounds N] [--only KITS] [--phases PHASES] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from background_harness import report, targets
from background_harness.catalogue import KITS
from background_harness.phases import FULL, QUICK, Run
from background_harness.team import team
from harness import facts
from harness.program import choose, run_program
from harness.servers import postgres
from sync import optional_redis

RESULTS = Path(__file__).resolve().parent / "results"
PHASES = ("drains", "latencies", "backlogs", "memories")


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the benchmark and return the exit status.
    """
    return run_program("benchmarks/background.py", parse(arguments), measure)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """
    Read the command line.
    """
    parser = argparse.ArgumentParser(prog="benchmarks/background.py", description=__doc__.splitlines()[1])
    parser.add_argument("--quick", action="store_true", help="a minute that shows everything works; not for citing")
    parser.add_argument("--rounds", type=int, help=f"rounds of enqueue and drain ({FULL.rounds}; 1 with --quick)")
    parser.add_argument("--json", type=Path, default=RESULTS / "background.json", help="where to write every round")
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
    Start the server and the controllers, run the phases, and compose the outcome.
    """
    machine = facts.machine()
    plan = QUICK if options.quick else FULL
    if options.rounds is not None:
        plan = replace(plan, rounds=options.rounds, other_rounds=options.rounds)
    log = options.json.with_suffix(".log")
    server = stack.enter_context(postgres())
    redis_url = stack.enter_context(optional_redis())
    kits = [kit for kit in KITS if kit.name in options.only]
    crew = stack.enter_context(team(kits, server, redis_url, log, refresh=options.refresh))
    run = Run(crew, plan)
    run.warm_up()
    found = {phase: getattr(run, phase)() for phase in PHASES if phase in options.phases}
    samples = found.get("memories") or []
    verdicts = targets.judge(run.board, samples, plan)
    load, cores = facts.load(), int(str(machine["cores"]))
    document = {
        "machine": {**machine, "load_average_after": load},
        "postgres": server.describe(),
        "run": asdict(plan),
        "versions": {member.kit.name: member.versions for member in crew.members},
        "labels": run.board.labels,
        "figures": {key: {name: asdict(one) for name, one in all_.items()} for key, all_ in run.board.figures.items()},
        "memory": samples,
        "targets": [verdict.as_facts() for verdict in verdicts],
        "doubts": list(targets.doubts(run.board, facts_load(machine), cores, is_quick=options.quick)),
        "missing": missing(crew.missing, options.only, run),
    }
    return document, report.table(document, run.board, plan, verdicts)


def facts_load(machine: dict[str, Any]) -> float:
    """
    Return the load before the run began.
    """
    return float(machine["load_average"][0])


def missing(failed: dict[str, str], wanted: set[str], run: Run) -> dict[str, str]:
    """
    Name what did not start, what failed on the way, and what was left out on purpose.
    """
    titles = {kit.name: kit.title for kit in KITS}
    left_out = {titles[name]: "left out by --only" for name in titles if name not in wanted}
    return {**{titles[name]: reason for name, reason in failed.items()}, **run.board.problems(), **left_out}


if __name__ == "__main__":
    sys.exit(main())
