"""
The command `dl_events`: list the events that the code can emit, publish them, and check what was published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from django_logic.management.usage import ExplainedCommand, machines_named
from django_logic.outbox.catalogue import Entry, Kind, Shape, asyncapi, catalogue, compared, worded
from django_logic.outbox.events import MOVE_SCHEMA

COLUMNS = ("topic", "from", "to", "action", "payload")
EVERY_MOVE = "of every move"

EPILOG = """
examples:
  manage.py dl_events                              every event, by model
  manage.py dl_events shop.Order                   those of one model
  manage.py dl_events --asyncapi --title "Shop" --version 2.1.0 --output events.json
  manage.py dl_events --check events.json          in CI: fail when an event has changed since

Events that a project writes itself, with OutboxMessage.objects.create(), are not listed. No row is read.

exit codes: 0 done or nothing has changed, 1 something has, or an argument is wrong
"""


class Command(ExplainedCommand):
    """
    List, publish or check the events that bound processes emit.
    """

    help = "List the events that bound processes emit: a table, JSON, or an AsyncAPI document."
    epilog = EPILOG
    # What is declared must be seen while a check complains of it.
    requires_system_checks = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """
        Let ``--version`` mean the document's.
        """
        kwargs.setdefault("conflict_handler", "resolve")
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """
        Take whose events, and what to do with them.
        """
        parser.add_argument("models", nargs="*", metavar="app.Model", help="every bound model without one")
        task = parser.add_mutually_exclusive_group()
        task.add_argument("--json", action="store_true", help="write a JSON list")
        task.add_argument("--asyncapi", action="store_true", help="write an AsyncAPI document")
        task.add_argument("--check", metavar="FILE", help="exit with 1 when this document is not what the code emits")
        parser.add_argument("--title", help="for --asyncapi: what the document is called (after the project)")
        parser.add_argument("--version", help="for --asyncapi: the version of the document (1.0.0)")
        parser.add_argument("--output", metavar="FILE", help="write to a file instead of the terminal")

    def handle(self, *args: Any, **options: Any) -> None:
        """
        List, publish or check.

        Raises: CommandError, exit status 1.
        """
        for name in ("title", "version"):
            if options[name] is not None and not options["asyncapi"]:
                raise CommandError(f"--{name} is a part of an AsyncAPI document. Add --asyncapi.")
        entries = catalogue(machines_named(options["models"]))
        for topic, shape in [(entry.topic, shape) for entry in entries for shape in entry.shapes if shape.note]:
            self.stderr.write(f"{topic}: what {shape.builder} returns is not described: {shape.note}.", style_func=str)
        if options["check"] is not None:
            if options["output"] is not None:
                raise CommandError("--check writes no document. Leave --output out, or use --asyncapi.")
            self.check_document(Path(options["check"]), entries)
            return
        text = written(entries, options)
        self.write_to(options["output"], text)

    def check_document(self, file: Path, entries: list[Entry]) -> None:
        """
        Say what has changed since a document was written; exit with 1 when anything has.
        """
        found = compared(document_in(file), asyncapi(entries, title="", version=""))
        if not found:
            self.stdout.write(f"{file} is what the code emits: {counted(len(entries))}.")
            return
        lines = [f"added    {topic}" for topic in found.added]
        lines += [f"removed  {topic}" for topic in found.removed]
        lines += [f"changed  {topic}: {change}" for topic, change in found.changed.items()]
        self.stdout.write("\n".join(lines or ["changed  how topics are described"]))
        raise CommandError(
            f"{file} is not what the code emits. Tell your readers, and write it anew: manage.py dl_events --asyncapi"
            f" --output {file}."
        )


def document_in(file: Path) -> dict[str, Any]:
    """
    Read a published document.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{file} is no JSON: {error}. Write it by dl_events --asyncapi.") from None
    if not isinstance(document, dict) or "asyncapi" not in document:
        raise CommandError(f"{file} is no AsyncAPI document. Write it by dl_events --asyncapi.")
    return document


def written(entries: list[Entry], options: dict[str, Any]) -> str:
    """
    Return the events in the form that is asked for.
    """
    if options["json"]:
        return as_json([entry.as_dict() for entry in entries])
    if options["asyncapi"]:
        project = str(settings.SETTINGS_MODULE or "").partition(".")[0] or "the project"
        title = f"Events of {project}" if options["title"] is None else options["title"]
        version = "1.0.0" if options["version"] is None else options["version"]
        return as_json(asyncapi(entries, title=title, version=version))
    return "\n".join(lines_of(entries)) + "\n"


def as_json(value: Any) -> str:
    """
    Return JSON that reads well in a diff.
    """
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def counted(count: int) -> str:
    """
    Return a number of events in words.
    """
    return f"{count} event{'' if count == 1 else 's'}"


def lines_of(entries: list[Entry]) -> Iterator[str]:
    """
    Yield a table of each machine, then what the payload of every move holds.
    """
    tables: dict[str, list[tuple[str, ...]]] = {}
    for entry in entries:
        for emitter in entry.emitters:
            mark = f" ({emitter.kind})" if emitter.kind in (Kind.BUSY, Kind.FAILED) else ""
            rows = tables.setdefault(f"{emitter.model}, {emitter.process_name}", [COLUMNS])
            starts = ", ".join(map(worded, emitter.starts))
            end = "" if emitter.end is None else worded(emitter.end)
            own = [shape for shape in entry.shapes if shape.aggregate == emitter.aggregate]
            rows.append((entry.topic, starts, end, f"{emitter.action}{mark}", "; ".join(map(payload_in_words, own))))
    for name, rows in sorted(tables.items()):
        yield from (name, *aligned(rows), "")
    if any(shape.schema == MOVE_SCHEMA for entry in entries for shape in entry.shapes):
        fields = "<model>_id, object_id, from, to, action, sequence, actor, reason, occurred_at"
        yield f"{EVERY_MOVE}: {fields}"
    yield f"{counted(len(entries))}."


def aligned(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """
    Yield the rows of a table with its columns below each other.
    """
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    for row in listed:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def payload_in_words(shape: Shape) -> str:
    """
    Return the fields of a payload; a question mark follows one that may be absent.
    """
    if shape.schema == MOVE_SCHEMA and not shape.builder:
        return EVERY_MOVE
    forms = shape.payload.get("anyOf", [shape.payload])
    return " or ".join(map(fields_in_words, forms)) + (f" [{shape.schema}]" if shape.schema else "")


def fields_in_words(payload: dict[str, Any]) -> str:
    """
    Return the fields of one form of a payload.
    """
    required = payload.get("required", [])
    named = [f"{name}{'' if name in required else '?'}" for name in payload.get("properties", {})]
    return ", ".join(named) or "any fields"
