"""
What commands share: help with examples, options that are read with one clear line for a slip, a log that is heard.
"""

from __future__ import annotations

import logging
from argparse import RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from django_logic.machines import Machine, machine_of, machines, model_named
from django_logic.numbers import LONGEST_WAIT
from django_logic.states import nearest

__all__ = ["ExplainedCommand", "log_to_terminal", "machines_named", "number", "refuse_unknown_databases"]


class ExplainedCommand(BaseCommand):
    """
    Tell behind the options what they can't tell: examples, and what the exit statuses mean.
    """

    epilog: ClassVar[str] = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """
        Keep the lines of the text apart.
        """
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        return super().create_parser(prog_name, subcommand, epilog=self.epilog, **kwargs)

    def write_to(self, file: str | None, text: str) -> None:
        """
        Write a text to a file, or to the terminal for None.

        Raises: CommandError for a file that can't be written.
        """
        if file is None:
            self.stdout.write(text, ending="")
            return
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{file} can't be written: {error.strerror or error}.") from None


def number(options: Mapping[str, Any], name: str, least: float, *, is_whole: bool = False) -> Any:
    """
    Read a number, of seconds unless it is a whole one; none is larger than what clocks can add.

    Raises: CommandError for one that is none, too small or too large.
    """
    flag, text = f"--{name.replace('_', '-')}", str(options[name])
    kind = "a whole number" if is_whole else "a number of seconds"
    try:
        value = int(text) if is_whole else float(text)
    except ValueError:
        raise CommandError(f"{flag} takes {kind}; found {text!r}.") from None
    if not value >= least:  # which NaN is not, either
        raise CommandError(f"{flag} must be {kind} from {least:g}; found {text}.")
    if value > LONGEST_WAIT:
        raise CommandError(f"{flag} must be {kind} up to {LONGEST_WAIT:.0f}; found {text}.")
    return value


def refuse_unknown_databases(options: Mapping[str, Any], *names: str) -> None:
    """
    Check that options name databases of the settings.

    Raises: CommandError with near names.
    """
    for name in names:
        if options[name] is not None and options[name] not in connections:
            raise CommandError(
                f"--{name.replace('_', '-')}: settings.DATABASES has no {options[name]!r}."
                f"{nearest(options[name], list(connections))}"
            )


def machines_named(labels: Sequence[str]) -> list[Machine]:
    """
    Return the machines of the named models, or all, each once.

    Raises: CommandError for a name that no bound model has.
    """
    if not labels:
        return machines()
    try:
        models = [model_named(label) for label in labels]
        found = [machine for model in models for machine in machines(model) or [machine_of(model)]]
    except ValueError as error:
        raise CommandError(str(error)) from None
    return list({(machine.name, machine.column.name): machine for machine in found}.values())


def log_to_terminal(name: str) -> None:
    """
    Let a logger be heard where the project says nothing about it.
    """
    if not logging.getLogger(name).hasHandlers():
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        logging.getLogger("django-logic").setLevel(logging.INFO)
