"""
Print one table of everything that was measured, and of everything that was not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import Any

from background_harness.figures import Board, Figure
from background_harness.targets import Verdict
from events_harness.phases import (
    CLIENT,
    COLD,
    DEEP,
    HOT,
    OURS,
    REDIS,
    SERVER,
    SHALLOW,
    SUBSCRIBERS,
    Plan,
    drain_measure,
)
from events_harness.targets import ratio

WIDTH, CELL = 44, 8
RELAYS = (1, 3)
NAMES = {
    "fast": "fast path",
    "effect": "one side effect",
    "spaced": "fast path, each with a NOTIFY",
    "bulk": "bulk move",
}
BINDINGS = {CLIENT: "", SERVER: ", prepared"}


def table(document: Mapping[str, Any], board: Board, plan: Plan, verdicts: Sequence[Verdict]) -> str:
    """
    Render the run.
    """
    lines = [headline(document), "", *costs(board, plan), "", *relays(board), "", *depths(board, plan), ""]
    lines += [
        f"{'bound':<70} {'found':>8} {'target':>8}",
        *[judged(each, document["doubts"]) for each in verdicts],
    ]
    lines += [f"!! NOT MEASURED: {name}: {reason}" for name, reason in document["missing"].items()]
    lines += [f"!! DON'T CITE THIS RUN: {doubt}" for doubt in document["doubts"]]
    return "\n".join(lines)


def headline(document: Mapping[str, Any]) -> str:
    """
    Say where and how.
    """
    server, machine, run = document["postgres"], document["machine"], document["run"]
    settings = server["settings"]
    return (
        f"{' '.join(server['version'].split()[:2])} ({server['origin']}; fsync={settings['fsync']}, "
        f"synchronous_commit={settings['synchronous_commit']}), {machine['cores']} cores; "
        f"medians of {run['rounds']} rounds of {run['moves']} moves in turns, and of {run['drain_rounds']} of relays"
    )


def costs(board: Board, plan: Plan) -> list[str]:
    """
    Tell what a message adds: milliseconds of a move, and ratios within a round.
    """
    lines = [heading("a move, ms", ("alone", "message", "no relay", "x", "x no r."))]
    for shape, by in plan.shapes:
        rows = f" of {plan.bulk_rows:,}, each" if shape == "bulk" else ""
        lines.append(cost_line(board, OURS, f"{NAMES[shape]}{rows}{BINDINGS[by]}", shape, by))
    peers = [key for key in board.labels if not key.startswith(OURS)]
    return lines + [
        cost_line(board, key, f"{board.labels[key]}: ORM, one transaction", "fast", CLIENT) for key in peers
    ]


def cost_line(board: Board, key: str, name: str, shape: str, by: str) -> str:
    """
    Render one kind of move.
    """
    times = [board.look_up(key, f"cost, {shape}, {by}, {way}") for way in ("off", "on", "none")]
    ratios = [ratio(board, shape, by, way, key) for way in ("on", "none")]
    cells = ["-" if one is None else f"{one.value():.3f}" for one in times]
    return line(name, cells + ["-" if one is None else f"{one:.2f}" for one in ratios])


def relays(board: Board) -> list[str]:
    """
    Tell what relays deliver in a second, and how late an event comes.
    """
    columns = [
        (f"{number}{'' if keys == COLD else ' hot'}", drain_measure(end, keys, number))
        for end in (SUBSCRIBERS, REDIS)
        for keys in (COLD, HOT)
        for number in RELAYS
    ]
    half = " " * WIDTH + f" {'to functions, events/s by relays':^{4 * CELL + 3}} {'to Redis Streams':^{4 * CELL + 3}}"
    lags = [f"{pace} {part}" for pace in ("idle", "50/s") for part in ("p50", "p95")]
    lines = [f"{half} {'commit to function, ms':^{4 * CELL + 3}}".rstrip()]
    lines.append(heading("", [name for name, _ in columns] + lags))
    for key, label in board.labels.items():
        cells = [whole(board.look_up(key, measure)) for _, measure in columns]
        for pace in ("idle", "steady"):
            cells += percentiles(board.look_up(key, f"lag, {pace}"))
        lines.append(line(label, cells))
    return lines


def depths(board: Board, plan: Plan) -> list[str]:
    """
    Tell what rows cost that are delivered already, and keys that wait.
    """
    few, many = plan.sent_rows
    names = {
        SHALLOW: f"{few:,} delivered rows",
        DEEP: f"{many:,} delivered rows",
        "waiting": f"{plan.waiting_keys:,} waiting keys",
    }
    lines = [heading("one relay", ("claim ms", "p95", "events/s"))]
    for place, name in names.items():
        claim, pace = board.look_up(OURS, f"claim, {place}"), board.look_up(OURS, f"drain, {place}")
        lines.append(line(name, [*percentiles(claim), whole(pace)]))
    return lines


def percentiles(figure: Figure | None) -> list[str]:
    """
    Render the median and the 95th percentile.
    """
    if figure is None or len(figure.values) < 2:
        return ["-", "-"]
    parts = quantiles(figure.values, n=20, method="inclusive")
    return [f"{parts[9]:.1f}", f"{parts[-1]:.1f}"]


def whole(figure: Figure | None) -> str:
    """
    Render a pace.
    """
    return "-" if figure is None else f"{figure.value():.0f}"


def heading(name: str, columns: Sequence[str]) -> str:
    """
    Render the names of columns.
    """
    return line(name, columns)


def line(name: str, cells: Sequence[str]) -> str:
    """
    Render one row.
    """
    return f"{name[:WIDTH]:<{WIDTH}}" + "".join(f" {cell:>{CELL}}" for cell in cells)


def judged(verdict: Verdict, doubts: Sequence[str]) -> str:
    """
    Render one bound.
    """
    found = "-" if verdict.found is None else f"{verdict.found:.2f}"
    words = {True: "met", False: "MISSED", None: "NOT MEASURED"}[verdict.met]
    if doubts and verdict.met is not None:
        words += " (doubtful, see below)"
    return f"{verdict.text:<70} {found:>8} {f'<= {verdict.at_most:g}':>8} {words}"
