"""
Turn rounds into one table and one JSON document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harness.rounds import Result

BASELINE = "raw"
STAND_IN = "hand_statement"
WIDTH = 72
# The yardstick does the same work in every round; when its rounds differ by more, something else ran here.
NOISE_LIMIT = 1.5
BUSY_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """
    A ratio to print, and the bound the project set itself, if any.
    """

    text: str
    numerator: str
    denominator: str
    at_least: float | None = None
    at_most: float | None = None

    def judge(self, results: Mapping[str, Result]) -> dict[str, Any]:
        """
        Compare two contenders of one run.

        Shape: ratio None where either was not measured; met None without a bound.
        """
        ours, theirs = results.get(self.numerator), results.get(self.denominator)
        ratio: float | None = None
        if ours and theirs and ours.is_measured and theirs.is_measured:
            # A bound from above speaks of time, one from below of speed.
            ratio = theirs.ratio_to(ours) if self.at_most is not None else ours.ratio_to(theirs)
        met = None
        if ratio is not None and self.at_least is not None:
            met = ratio >= self.at_least
        if ratio is not None and self.at_most is not None:
            met = ratio <= self.at_most
        return {**asdict(self), "ratio": ratio, "met": met}


TARGETS = (
    Target(text="fast path / raw limit", numerator="ours_fast", denominator="raw", at_least=0.7),
    Target(
        text="fast path / django-fsm-2 equal guarantees", numerator="ours_fast", denominator="fsm_equal", at_least=2.1
    ),
    Target(
        text="side effect / django-fsm-2 equal guarantees, side effect",
        numerator="ours_effect",
        denominator="fsm_equal_effect",
        at_least=1.4,
    ),
    Target(
        text="side effect / published django-logic 0.17.2",
        numerator="ours_effect",
        denominator="django_logic_0.17.2",
        at_least=1.9,
    ),
    Target(text="bulk time / raw set-based time", numerator="bulk_ours", denominator="bulk_raw", at_most=2.5),
)
# The targets compare our moves without an event row with rivals that write one; these compare like with like.
LIKE_FOR_LIKE = (
    Target(text="fast path / django-fsm-2 lock + atomic", numerator="ours_fast", denominator="fsm_locked"),
    Target(
        text="fast path + outbox row / django-fsm-2 equal guarantees", numerator="ours_outbox", denominator="fsm_equal"
    ),
    Target(
        text="side effect + outbox row / django-fsm-2 equal, side effect",
        numerator="ours_effect_outbox",
        denominator="fsm_equal_effect",
    ),
    Target(text="fast path + outbox row / hand-written transition_to", numerator="ours_outbox", denominator="seed"),
    Target(text="our statement / hand-written statement", numerator="raw", denominator="hand_statement"),
    Target(text="fast path / our statement prepared by the driver", numerator="ours_fast", denominator="raw_prepared"),
)


def table(document: Mapping[str, Any], sequential: Mapping[str, Result], bulk: Mapping[str, Result]) -> str:
    """
    Render everything that was measured, and everything that was not.
    """
    run = document["run"]
    lines = [
        _headline(document),
        "",
        f"{'one move at a time':<{WIDTH}} {'moves/s':>8} {'x raw':>6} {'lowest-highest':>15} {'stmts':>5}",
        *_rows(sequential, _baseline(sequential)),
        "",
        f"{run['bulk_rows']:,} rows at once".ljust(WIDTH) + f" {'rows/s':>8} {'x raw':>6} {'lowest-highest':>15}",
        *_rows(bulk, bulk.get("bulk_raw")),
        "",
        f"{'ratios':<{WIDTH}} {'found':>8} {'target':>8}",
        *[_ratio(each, is_doubtful=bool(document["doubts"])) for each in document["targets"]],
        f"{'like for like':<{WIDTH}}",
        *[_ratio(each) for each in document["like_for_like"]],
        "",
        "several threads on one row",
        *[f"  {name}: {_sentence(facts)}" for name, facts in document["contention"].items()],
    ]
    lines += [f"!! NOT MEASURED: {name}: {reason}" for name, reason in document["missing"].items()]
    lines += [f"!! DON'T CITE THIS RUN: {doubt}" for doubt in document["doubts"]]
    return "\n".join(lines)


def _headline(document: Mapping[str, Any]) -> str:
    run, server, machine = document["run"], document["postgres"], document["machine"]
    settings = server["settings"]
    return (
        f"{' '.join(server['version'].split()[:2])} ({server['origin']}; fsync={settings['fsync']}, "
        f"synchronous_commit={settings['synchronous_commit']}), {machine['cores']} cores; "
        f"median of {run['rounds']} interleaved rounds of {run['moves']} moves, one connection, TCP loopback"
    )


def doubts(results: Mapping[str, Result], machine: Mapping[str, Any], *, is_quick: bool) -> list[str]:
    """
    Return why this run should not be cited; empty when nothing speaks against it.
    """
    found = []
    if is_quick:
        found.append("a quick run shows that everything works, not how fast")
    baseline = _baseline(results)
    if baseline and (spread := max(baseline.seconds) / min(baseline.seconds)) > NOISE_LIMIT:
        found.append(f"the yardstick's rounds differ by {spread:.1f} x")
    load, cores = machine["load_average"][0], machine["cores"]
    if load > cores * BUSY_SHARE:
        found.append(f"the machine was busy before the run began (load {load} on {cores} cores)")
    return found


def _baseline(results: Mapping[str, Result]) -> Result | None:
    for key in (BASELINE, STAND_IN):
        if key in results and results[key].is_measured:
            return results[key]
    return None


def _rows(results: Mapping[str, Result], baseline: Result | None) -> list[str]:
    measured = sorted((each for each in results.values() if each.is_measured), key=Result.rate, reverse=True)
    lines = []
    for each in measured:
        rates = each.rates()
        ratio = f"{each.ratio_to(baseline):.2f}" if baseline else "-"
        spread = f"{min(rates):.0f}-{max(rates):.0f}"
        count = "" if each.statements is None else str(each.statements)
        lines.append(f"{each.label[:WIDTH]:<{WIDTH}} {each.rate():>8.0f} {ratio:>6} {spread:>15} {count:>5}".rstrip())
    missing = [each for each in results.values() if not each.is_measured]
    return lines + [f"!! NOT MEASURED: {each.label}: {each.problem}" for each in missing]


def _ratio(judged: Mapping[str, Any], *, is_doubtful: bool = False) -> str:
    found = "-" if judged["ratio"] is None else f"{judged['ratio']:.2f}"
    wanted = ""
    if judged["at_least"] is not None:
        wanted = f">= {judged['at_least']}"
    if judged["at_most"] is not None:
        wanted = f"<= {judged['at_most']}"
    verdict = {True: "met", False: "MISSED", None: "" if not wanted else "NOT MEASURED"}[judged["met"]]
    if is_doubtful and judged["met"] is not None:
        verdict += " (doubtful, see below)"
    return f"{judged['text']:<{WIDTH}} {found:>8} {wanted:>8} {verdict}".rstrip()


def _sentence(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
