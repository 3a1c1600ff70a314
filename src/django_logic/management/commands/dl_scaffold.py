"""
The command `dl_scaffold`: write a starter test for a bound process.
"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_logic.machines import machine_of, model_named
from django_logic.scaffold import starter_test


class Command(BaseCommand):
    """
    Print a starter test for a bound process, ready to be pasted.
    """

    help = "Print a starter test for a bound process: one method for each declared edge, and a matrix of all others."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """
        Take the model, and the process where it has several.
        """
        parser.add_argument("model", help="app.Model")
        parser.add_argument("process", nargs="?", help="the name of its process, where it has several")

    def handle(self, *args: Any, **options: Any) -> None:
        """
        Print.
        """
        try:
            machine = machine_of(model_named(options["model"]), options["process"])
        except ValueError as error:
            raise CommandError(f"dl_scaffold: {error}") from error
        self.stdout.write(starter_test(machine), ending="")
