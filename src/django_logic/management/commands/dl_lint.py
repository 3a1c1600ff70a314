"""
The command `dl_lint`: find code that writes a bound state past its process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_logic import lint
from django_logic.management.usage import ExplainedCommand
from django_logic.progress import progress

EPILOG = f"""
rules:
{chr(10).join(f"  {code}  {meaning}" for code, meaning in lint.RULES.items())}

Creating an object with a state is its birth, not a move, and is never reported.
A comment on the line, with a reason, allows a write:
  order.status = "imported"  # dl: allow the importer restores states from the old shop

examples:
  manage.py dl_lint                          every Python file below the current folder
  manage.py dl_lint shop billing --exclude tests
  manage.py dl_lint shop --migrations        migrations too; RenameState is their way to rename a state

exit codes: 0 nothing found, 1 a write was found, a file can't be read or a path does not exist
"""


class Command(ExplainedCommand):
    """
    Audit source text for writes of bound state fields.
    """

    help = "Find code that writes a bound state field past its process: assignments, update(), bulk_update() and kin."
    epilog = EPILOG
    # Reading source text needs neither a database nor a project without faults.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """
        Take where to look and how to tell.
        """
        parser.add_argument(
            "paths", nargs="*", default=["."], help="files and folders; the current folder without them"
        )
        parser.add_argument("--migrations", action="store_true", help="read migrations too")
        parser.add_argument(
            "--exclude",
            action="append",
            default=[],
            metavar="PATTERN",
            help="pass over paths, folders or names that fit, such as tests or 'legacy_*.py'; may be repeated",
        )
        parser.add_argument("--allowed", action="store_true", help="list the allowed writes too, with their reasons")
        parser.add_argument("--json", action="store_true", help="write a JSON list")

    def handle(self, *args: Any, **options: Any) -> None:
        """
        Read the files and list what is found; fail when anything is.
        """
        roots = [Path(path) for path in options["paths"] or ["."]]
        missing = [str(root) for root in roots if not root.exists()]
        if missing:
            raise CommandError(f"There is no {' and no '.join(missing)}. Name files or folders that exist.")
        watched = lint.watch()
        files = list(lint.python_files(roots, exclude=options["exclude"], migrations=options["migrations"]))
        found = self.read(files, watched)
        faults = [finding for finding in found if not finding.allowed]
        self.show(found if options["allowed"] else faults, as_json=options["json"])
        if faults:
            raise CommandError(f"{counted(len(faults), 'finding')} in {counted(len(files), 'file')}.")
        if not options["json"]:
            self.stdout.write(self.style.SUCCESS(clean(len(files), len(found), watched)))

    def read(self, files: Sequence[Path], watched: lint.Watch) -> list[lint.Finding]:
        """
        Audit files, and tell a terminal how far it is.
        """
        found: list[lint.Finding] = []
        with progress(self.stderr, "files", lambda: len(files)) as advance:
            for path in files:
                found += lint.check_file(path, watched)
                advance(1)
        return found

    def show(self, found: Sequence[lint.Finding], *, as_json: bool) -> None:
        """
        List findings, a line each, or all of them as JSON.
        """
        if as_json:
            self.stdout.write(json.dumps([asdict(finding) for finding in found], indent=2, ensure_ascii=False))
            return
        for finding in found:
            self.stdout.write(str(finding))


def clean(files: int, allowed: int, watched: lint.Watch) -> str:
    """
    Say that nothing was found, and what was looked for: a run that watched nothing proves nothing.
    """
    if not watched.fields:
        return "No process is bound, so there was nothing to look for."
    names = ", ".join(f"{name} ({', '.join(entry.labels)})" for name, entry in sorted(watched.fields.items()))
    told = f" {counted(allowed, 'allowed write')}; list with --allowed." if allowed else ""
    return f"No state is written past its process in {counted(files, 'file')}.{told} Watched: {names}."


def counted(number: int, noun: str) -> str:
    """
    Return a number with its noun.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
