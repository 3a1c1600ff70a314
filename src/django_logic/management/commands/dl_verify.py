"""
The command `dl_verify`: list where columns, history and the database disagree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.utils import DatabaseError

from django_logic.machines import Machine
from django_logic.management.usage import ExplainedCommand, machines_named
from django_logic.progress import progress
from django_logic.states import nearest
from django_logic.verify import Finding, size_of, verify

LIMIT = 100

EPILOG = """
what is compared:
  column              the state column holds what the newest move in history went to
  chain               each move starts where the one before it ended
  sequence            the moves of an object are numbered 1, 2, 3 … without gaps
  unknown_state       every stored state is one the code declares
  constraint_differs  a TransitionConstraint allows exactly the declared moves
  constraint_missing  and is in the database

An object without history is fine: it never moved. Nothing is changed, and the project may run meanwhile.

examples:
  manage.py dl_verify                              every bound model
  manage.py dl_verify shop.Order --limit 0         one model, every finding
  manage.py dl_verify --database default --database archive --json

exit codes: 0 everything agrees, 1 something was found, or an argument is wrong
"""


class Command(ExplainedCommand):
    """
    Verify bound models against their history.
    """

    help = "Verify that state columns, their history and the database's transition constraints agree."
    epilog = EPILOG
    # A constraint that differs fails a check, and is among what this command is asked to find.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """
        Take what to verify, where, and how to tell.
        """
        parser.add_argument("models", nargs="*", metavar="app.Model", help="every bound model without one")
        parser.add_argument(
            "--database",
            action="append",
            metavar="ALIAS",
            help=f"the database to read ({DEFAULT_DB_ALIAS}); may be repeated",
        )
        parser.add_argument(
            "--limit", type=int, default=LIMIT, metavar="N", help=f"stop after N findings ({LIMIT}); 0 lists all"
        )
        parser.add_argument("--json", action="store_true", help="write a JSON list")

    def handle(self, *args: Any, **options: Any) -> None:
        """
        List the findings as they come; fail when there is any.
        """
        limit = options["limit"]
        if limit < 0:
            raise CommandError(f"--limit takes 0 or more; found {limit}.")
        chosen = machines_named(options["models"])
        found = self.findings(chosen, self.aliases(options["database"]))
        shown = islice(found, limit or None)
        count, mends = (self.as_json if options["json"] else self.as_text)(shown)
        if not count:
            if not options["json"]:
                agreed = ", ".join(machine.name for machine in chosen) or "nothing is bound"
                self.stdout.write(f"Everything agrees: {agreed}.")
            return
        for mend in mends:
            self.stderr.write(f"\n{mend}", style_func=str)
        more = " Stopped there; --limit 0 lists all." if count == limit else ""
        raise CommandError(f"{count} finding{'s' if count > 1 else ''}.{more}")

    def aliases(self, named: list[str] | None) -> list[str]:
        """
        Return the databases to read.
        """
        for alias in named or []:
            if alias not in connections:
                known = ", ".join(map(repr, connections))
                raise CommandError(f"No database is called {alias!r}; found {known}.{nearest(alias, connections)}")
        return list(dict.fromkeys(named or [DEFAULT_DB_ALIAS]))

    def findings(self, chosen: list[Machine], aliases: list[str]) -> Iterator[tuple[str, Finding]]:
        """
        Yield each finding with its database, with a bar on a terminal.
        """
        for alias in aliases:
            for machine in chosen:
                label = f"{machine.name} on {alias}"
                try:
                    with progress(self.stderr, label, partial(size_of, machine, alias)) as advance:
                        for finding in verify(machine, alias, advance):
                            advance.clear()
                            yield alias, finding
                except DatabaseError as error:
                    reason = str(error).strip().partition("\n")[0]
                    raise CommandError(
                        f"{label} can't be read: {reason}. Is it migrated? Run manage.py migrate --database={alias}."
                    ) from error

    def as_text(self, found: Iterator[tuple[str, Finding]]) -> tuple[int, list[str]]:
        """
        Write a line for each finding; return how many, and what can be done.
        """
        count, mends = 0, {}
        for alias, finding in found:
            count += 1
            mends[finding.mend] = f"{finding.code}: {finding.mend}"
            place = " ".join(filter(None, (finding.model, finding.object)))
            where = "" if alias == DEFAULT_DB_ALIAS else f" on {alias}"
            self.stdout.write(f"{finding.code}: {place} ({finding.process}{where}): {finding.text}")
        return count, list(mends.values())

    def as_json(self, found: Iterator[tuple[str, Finding]]) -> tuple[int, list[str]]:
        """
        Write a JSON list, an element at a time; return how many there are.
        """
        count = 0
        for alias, finding in found:
            self.stdout.write("," if count else "[", ending="\n")
            self.stdout.write(json.dumps({"database": alias, **asdict(finding)}, ensure_ascii=False), ending="")
            count += 1
        self.stdout.write("\n]" if count else "[]")
        return count, []
