"""
The command `dl_report`: how long objects stay in each state, and which are stuck.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.utils import DatabaseError
from django.utils import timezone

from django_logic.machines import Machine, machine_of, machines, model_named
from django_logic.management.usage import ExplainedCommand
from django_logic.models import StatusChange
from django_logic.reports import TimeInState
from django_logic.states import nearest

LIMIT = 20
EXIT_STUCK = 3

EPILOG = f"""
columns:
  stays   how many stays in the state have ended; the times to the right are theirs
  p50     half of them were shorter than this (the median), p95: 95 of 100 were
  open    how many objects are in the state now

A stay is counted when history has the move into the state. An object that was created in the state, without a record
of its birth (Process.record_initial_state), is not counted, since nobody knows when its stay began.

examples:
  manage.py dl_report shop.Order
  manage.py dl_report shop.Order --state processing --stuck 48     and who has been in it for over two days
  manage.py dl_report shop.Parcel --process payment --json         times in seconds

--stuck leaves out states that no declared move leaves, unless --state names one: there every object stays for good.

exit codes: 0 reported, 1 an argument is wrong, {EXIT_STUCK} with --stuck: at least one object is stuck
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """
    Hold what is reported of one state.
    """

    machine: Machine
    state: str | None
    figures: TimeInState
    stuck: list[Any]
    stuck_count: int


class Command(ExplainedCommand):
    """
    Report on a bound model's stays in its states.
    """

    help = "Report how long the objects of a model stay in each state, and which are stuck, read from history."
    epilog = EPILOG
    # Reading history must work while a check complains.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """
        Take what to report on, and how to tell.
        """
        parser.add_argument("model", metavar="app.Model", help="a bound model, such as shop.Order")
        parser.add_argument("--process", metavar="NAME", help="only the process of this name")
        parser.add_argument("--state", metavar="S", help="only this state")
        parser.add_argument(
            "--stuck", metavar="HOURS", help="list the objects that have been in a state for longer than this"
        )
        parser.add_argument(
            "--limit",
            type=int,
            default=LIMIT,
            metavar="N",
            help=f"list at most N of these a state ({LIMIT}); 0: all",
        )
        parser.add_argument("--json", action="store_true", help="write JSON, times in seconds")
        parser.add_argument(
            "--database", default=DEFAULT_DB_ALIAS, metavar="ALIAS", help=f"the database to read ({DEFAULT_DB_ALIAS})"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """
        Report.
        """
        alias, limit = options["database"], options["limit"]
        longer_than = hours(options["stuck"])
        if limit < 0:
            raise CommandError(f"--limit takes 0 or more; found {limit}.")
        if alias not in connections:
            known = ", ".join(map(repr, connections))
            raise CommandError(f"No database is called {alias!r}; found {known}.{nearest(alias, connections)}")
        try:
            chosen = chosen_machines(options["model"], options["process"], options["state"])
            lines = [line for each in chosen for line in lines_of(each, options["state"], longer_than, limit, alias)]
        except ValueError as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            reason = str(error).strip().partition("\n")[0]
            raise CommandError(
                f"History can't be read: {reason}. Is it migrated? Run manage.py migrate --database={alias}."
            ) from error
        (self.write_json if options["json"] else self.write_text)(lines, alias, longer_than)
        stuck = sum(line.stuck_count for line in lines)
        if stuck:
            told = f"{stuck:,} objects are" if stuck > 1 else "1 object is"
            raise CommandError(f"{told} stuck for longer than {options['stuck']} h.", returncode=EXIT_STUCK)

    def write_text(self, lines: list[Line], alias: str, longer_than: timedelta | None) -> None:
        """
        Write a table for each process, and under it who is stuck.
        """
        for machine in dict.fromkeys(line.machine for line in lines):
            own = [line for line in lines if line.machine is machine]
            self.stdout.write(f"{machine.name} on {alias}\n\n")
            for row in table(own):
                self.stdout.write(row)
            for line in own:
                for row in stuck_list(line):
                    self.stdout.write(row)
            self.stdout.write("")
        if longer_than is not None and not any(line.stuck_count for line in lines):
            self.stdout.write(f"Nothing has been in a state for longer than {readable(longer_than)}.")

    def write_json(self, lines: list[Line], alias: str, longer_than: timedelta | None) -> None:
        """
        Write one list with an entry for each state.
        """
        self.stdout.write(
            json.dumps([as_data(line, alias, longer_than) for line in lines], indent=2, ensure_ascii=False)
        )


def hours(text: str | None) -> timedelta | None:
    """
    Read a number of hours.
    """
    if text is None:
        return None
    try:
        number = float(text)
        if not math.isfinite(number) or number < 0:
            raise ValueError
        return timedelta(hours=number)
    except (ValueError, OverflowError):
        raise CommandError(f"--stuck takes a number of hours, 0 or more; found {text!r}.") from None


def chosen_machines(label: str, process_name: str | None, state: str | None) -> list[Machine]:
    """
    Return the machines to report on: without a process named, all that know the state.
    """
    model = model_named(label)
    if process_name is not None:
        return [machine_of(model, process_name)]
    own = machines(model) or [machine_of(model)]
    return [machine for machine in own if state in machine.states] or own[: 1 if state is not None else None]


def lines_of(machine: Machine, state: str | None, stuck: timedelta | None, limit: int, alias: str) -> Iterable[Line]:
    """
    Ask for one line for each state.
    """
    records = StatusChange.objects.using(alias)
    process = machine.column.process_name
    for each in machine.states if state is None else [state]:
        figures = records.time_in_state(machine.column.owner, each, process_name=process)
        rows, count = [], 0
        if stuck is not None and (state is not None or each not in machine.final_states):
            found = records.stuck(machine.column.owner, each, longer_than=stuck, process_name=process)
            rows = list(found[:limit] if limit else found)
            count = found.count() if len(rows) == limit else len(rows)
        yield Line(machine=machine, state=each, figures=figures, stuck=rows, stuck_count=count)


def table(lines: list[Line]) -> Iterable[str]:
    """
    Lay the figures out in columns.
    """
    rows: list[tuple[str, ...]] = [("state", "stays", "mean", "p50", "p95", "longest", "open")]
    for line in lines:
        figures = line.figures
        times = [readable(time) for time in (figures.mean, figures.p50, figures.p95, figures.max)]
        rows.append((shown(line.state), f"{figures.count:,}", *times, f"{figures.open:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        padded = (text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True))
        yield "  ".join((name.ljust(widths[0]), *padded))


def stuck_list(line: Line) -> Iterable[str]:
    """
    List the objects that are stuck in one state, the oldest first.
    """
    if not line.stuck_count:
        return
    yield f"\nstuck in {shown(line.state)}: {line.stuck_count:,}"
    for change in line.stuck:
        entered = timezone.localtime(change.occurred_at) if settings.USE_TZ else change.occurred_at
        age = readable(timezone.now() - change.occurred_at)
        by = f" by {change.actor_label}" if change.actor_label else ""
        yield f"  {change.instance_id}  for {age}, since {entered:%Y-%m-%d %H:%M} ({change.action}{by})"
    if line.stuck_count > len(line.stuck):
        yield f"  and {line.stuck_count - len(line.stuck):,} more; --limit 0 lists all"


def as_data(line: Line, alias: str, longer_than: timedelta | None) -> dict[str, Any]:
    """
    Return a line as plain data.
    """
    figures = line.figures
    data: dict[str, Any] = {
        "database": alias,
        "model": line.machine.label,
        "process": line.machine.column.process_name,
        "state": line.state,
        "count": figures.count,
        "open": figures.open,
    }
    for name in ("mean", "p50", "p95", "max"):
        time = getattr(figures, name)
        data[f"{name}_seconds"] = None if time is None else time.total_seconds()
    if longer_than is not None:
        data["stuck_count"] = line.stuck_count
        data["stuck"] = [
            {
                "object": change.instance_id,
                "since": change.occurred_at.isoformat(),
                "action": change.action,
                "actor": change.actor_label,
                "reason": change.reason,
            }
            for change in line.stuck
        ]
    return data


def shown(state: str | None) -> str:
    """
    Write a state so that nothing and empty text can be seen.
    """
    return "(null)" if state is None else state or "(empty)"


def readable(time: timedelta | None) -> str:
    """
    Write a duration with its two largest units, – for none.
    """
    if time is None:
        return "–"
    if time < timedelta(0):
        return f"-{readable(-time)}"
    if time < timedelta(milliseconds=1):
        return f"{time // timedelta(microseconds=1)} µs"
    if time < timedelta(seconds=1):
        return f"{time // timedelta(milliseconds=1)} ms"
    if time < timedelta(minutes=1):
        return f"{time // timedelta(milliseconds=100) / 10} s"
    minutes, seconds = divmod(int(time.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
