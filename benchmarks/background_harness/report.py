"""
Print one table of everything that was measured, and of everything that was not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from background_harness.contender import NO_OP, ONE_WRITE
from background_harness.figures import Board
from background_harness.phases import Plan, drain_measure
from background_harness.targets import OURS, Verdict

WIDTH, CELL = 50, 7
CHILDREN = (1, 2, 4)
KILO = 1024
DEEPEST = "deep, 1000000"


def table(document: Mapping[str, Any], board: Board, plan: Plan, verdicts: Sequence[Verdict]) -> str:
    """
    Render the run.
    """
    samples = document["memory"]
    lines = [_headline(document), "", *_heading(), *_rows(board), ""]
    lines += [
        f"{'bound':<70} {'found':>8} {'target':>8}",
        *[_verdict(each, document["doubts"]) for each in verdicts],
        "",
    ]
    lines += [*_claims(board, plan), *_memory(samples)]
    lines += [f"!! NOT MEASURED: {name}: {reason}" for name, reason in document["missing"].items()]
    lines += [f"!! DON'T CITE THIS RUN: {doubt}" for doubt in document["doubts"]]
    return "\n".join(lines)


def _headline(document: Mapping[str, Any]) -> str:
    server, machine, run = document["postgres"], document["machine"], document["run"]
    settings = server["settings"]
    return (
        f"{' '.join(server['version'].split()[:2])} ({server['origin']}; fsync={settings['fsync']}, "
        f"synchronous_commit={settings['synchronous_commit']}), {machine['cores']} cores; "
        f"median of {run['rounds']} rounds, each backlog about {run['seconds']} s of work for two children"
    )


def _columns() -> list[tuple[str, str]]:
    return [
        ("enq/s", "enqueue"),
        *[(str(children), drain_measure(NO_OP, children)) for children in CHILDREN],
        *[(str(children), drain_measure(ONE_WRITE, children)) for children in CHILDREN],
        ("p50 ms", "p50"),
        ("p95 ms", "p95"),
        ("MB", f"memory, {NO_OP}, 2"),
        ("at 100", "deep, 100"),
        ("at 1 M", DEEPEST),
    ]


def _heading() -> list[str]:
    groups = (
        ("", 1),
        ("no-op, jobs/s by", 3),
        ("one write, jobs/s by", 3),
        ("latency", 2),
        ("2 ch.", 1),
        ("backlog", 2),
    )
    top = "".join(f" {name:^{span * (CELL + 1) - 1}}" for name, span in groups)
    names = "".join(f" {name:>{CELL}}" for name, _ in _columns())
    return [f"{'':<{WIDTH}}{top}".rstrip(), f"{'contender':<{WIDTH}}{names}"]


def _rows(board: Board) -> list[str]:
    by_pace = sorted(board.labels, key=lambda key: -_number(board, key, drain_measure(NO_OP, 2)))
    lines = []
    for key in by_pace:
        cells = "".join(f" {_cell(board, key, measure):>{CELL}}" for _, measure in _columns())
        lines.append(f"{board.labels[key][:WIDTH]:<{WIDTH}}{cells}")
    return lines


def _number(board: Board, key: str, measure: str) -> float:
    figure = board.look_up(key, measure)
    return figure.value() if figure else 0.0


def _cell(board: Board, key: str, measure: str) -> str:
    figure = board.look_up(key, measure)
    if figure is None:
        return "-"
    if measure.startswith("memory"):
        return f"{figure.value() / KILO:.0f}"
    return f"{figure.value():.1f}" if measure in ("p50", "p95") else f"{figure.value():.0f}"


def _verdict(verdict: Verdict, doubts: Sequence[str]) -> str:
    found = "-" if verdict.found is None else f"{verdict.found:.2f}"
    bound = f">= {verdict.at_least:g}" if verdict.at_least is not None else f"<= {verdict.at_most:g}"
    words = {True: "met", False: "MISSED", None: "NOT MEASURED"}[verdict.met]
    if doubts and verdict.met is not None:
        words += " (doubtful, see below)"
    return f"{verdict.text:<70} {found:>8} {bound:>8} {words}"


def _claims(board: Board, plan: Plan) -> list[str]:
    found = [(rows, board.look_up(OURS, f"claim, {rows}")) for rows in plan.claim_rows]
    cells = [f"{rows:,}: {figure.value():.2f} ms" for rows, figure in found if figure]
    return [f"one claim by rows that wait (median, client's clock)  {'   '.join(cells)}"] if cells else []


def _memory(samples: Sequence[Sequence[int]]) -> list[str]:
    cells = [f"{done:,}: {rss / KILO:.1f}" for done, rss, _ in samples]
    return (
        [f"RSS by attempts, MB, of the process that grew most; one child, never replaced:  {'  '.join(cells)}"]
        if cells
        else []
    )
