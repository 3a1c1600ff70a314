"""
Tell the story of the shop on the configured database.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection
from django.test.utils import override_settings

from example.shop.models import Order
from example.story.chapters import CHAPTERS, tell
from example.story.stage import Stage, wants_colours

WHERE_NEXT = """
Where to look next:
  example/shop/models.py     the tables of moves, and the constraints made of them
  example/shop/process.py    the processes and their hooks: copy these
  example/story/             this story
  README.md, docs/           what the library promises, and how to use it
"""
NOT_EMPTY = (
    "The database {name!r} holds tables that are not the demo's ({found}), so nothing was touched."
    " Name an empty database in DATABASE_URL, or unset it."
)


class Command(BaseCommand):
    """
    Migrate, tell the chapters, and exit with 1 if one did not come out as told.
    """

    help = "Tell the story of the shop: short chapters, each running real code on the configured database."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """
        Declare the options.
        """
        parser.add_argument("--check", action="store_true", help="never wait for Enter; for scripts and CI")
        parser.add_argument("--log", action="store_true", help="also print the library's own log lines")

    def handle(self, *args: Any, **options: Any) -> None:
        """
        Run the command.
        """
        began = time.monotonic()
        if not options["log"]:
            logging.getLogger("django-logic").setLevel(logging.CRITICAL)
        prepare()
        out = cast("TextIOWrapper", sys.stdout)
        # A terminal that can't show an arrow gets a question mark instead of a traceback.
        out.reconfigure(errors="replace")
        stage = Stage(
            out,
            colours=options["force_color"] or (wants_colours(out) and not options["no_color"]),
            pauses=not options["check"] and sys.stdin.isatty() and out.isatty(),
        )
        try:
            with outside_world():
                tell(stage)
        except KeyboardInterrupt:
            raise CommandError("Stopped.", returncode=130) from None
        stage.line("")
        if stage.failures:
            for failure in stage.failures:
                stage.line(stage.styled(f"FAILED {failure}", "red"))
            raise CommandError("The story did not come out as told.", returncode=1)
        seconds = time.monotonic() - began
        stage.line(stage.styled(f"All {len(CHAPTERS)} chapters came out as told: {stage.facts} facts.", "green"))
        stage.line(f"({connection.vendor}, {seconds:.1f} seconds)\n{WHERE_NEXT}" if options["check"] else WHERE_NEXT)


@contextmanager
def outside_world() -> Iterator[None]:
    """
    Give the courier and the printer new books, which go with the story.
    """
    with (
        tempfile.TemporaryDirectory(
            prefix="dl-outside-", dir=os.environ.get("SHOP_OUTSIDE_WORLD"), ignore_cleanup_errors=True
        ) as folder,
        override_settings(OUTSIDE_WORLD=Path(folder)),
    ):
        yield


def prepare() -> None:
    """
    Reach the database, make sure that it is the demo's own, and migrate it.

    Raises: CommandError when it can't be reached, or belongs to somebody else.
    """
    try:
        connection.ensure_connection()
    except DatabaseError as error:
        raise CommandError(f"The database can't be reached: {error}", returncode=2) from error
    tables = set(connection.introspection.table_names())
    ours = {*connection.introspection.django_table_names(), "django_migrations"}
    if tables and (tables - ours or Order._meta.db_table not in tables):
        found = ", ".join(sorted(tables - ours or tables)[:3])
        raise CommandError(NOT_EMPTY.format(name=connection.settings_dict["NAME"], found=found), returncode=2)
    try:
        call_command("migrate", verbosity=0)
    except DatabaseError as error:
        raise CommandError(f"The demo's tables can't be made: {error}", returncode=2) from error
