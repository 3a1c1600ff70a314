"""
The command `dl_graph`: draw bound processes as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db import connections, models
from django.db.utils import DatabaseError

from django_logic import graph
from django_logic.binding import ModelProcessBinding, ProcessManager
from django_logic.graph.diagram import shown
from django_logic.management.usage import ExplainedCommand
from django_logic.states import nearest

Source = ModelProcessBinding | Any

EPILOG = """
examples:
  manage.py dl_graph                               every bound process
  manage.py dl_graph shop.Order                    the processes of one model, as Mermaid
  manage.py dl_graph shop.Order --pk 7             the same with the present state of order 7 marked
  manage.py dl_graph shop.Order --state placed --format table
  manage.py dl_graph shop.Order --format dot | dot -Tsvg > order.svg

Several diagrams in Mermaid are written as one Markdown page, each in a fence of its own.

exit codes: 0 drawn, 1 nothing like that is bound or the file can't be written
"""


class Command(ExplainedCommand):
    """
    Draw the states and moves of bound models.
    """

    help = "Draw the states and moves of bound models: Mermaid, DOT (Graphviz), a table, Markdown or JSON."
    epilog = EPILOG
    # Drawing what is declared must work while a check complains of it.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """
        Take what to draw, what to mark, what to leave out and where to write it.
        """
        parser.add_argument("model", nargs="?", help="app.Model; every bound model without it")
        parser.add_argument("--process", metavar="NAME", help="only the process of this name")
        parser.add_argument(
            "--format", choices=[*graph.WRITERS, "json"], default="mermaid", help="how to write it (mermaid)"
        )
        parser.add_argument(
            "--json", action="store_const", const="json", dest="format", help="the same as --format json"
        )
        marked = parser.add_mutually_exclusive_group()
        marked.add_argument("--state", help="mark this state as the current one")
        marked.add_argument("--pk", help="mark the state of the object with this primary key")
        parser.add_argument("--database", metavar="ALIAS", help="where to read that object (where its model is read)")
        parser.add_argument(
            "--exclude", action="append", default=[], metavar="ACTION", help="leave this action out; may be repeated"
        )
        parser.add_argument("--output", metavar="FILE", help="write to a file instead of the terminal")

    def handle(self, *args: Any, **options: Any) -> None:
        """
        Draw.
        """
        if options["model"] is None and (options["state"] is not None or options["pk"] is not None):
            raise CommandError("--state and --pk mark a state of one model. Name it: dl_graph app.Model.")
        chosen = named(bindings_of(options["model"]), options["process"])
        diagrams = drawn(chosen, options)
        text = written(diagrams, options["format"])
        self.write_to(options["output"], text)


def bindings_of(label: str | None) -> list[ModelProcessBinding]:
    """
    Return the bindings of a model, of all without a label.
    """
    bound = list(ProcessManager.bindings)
    if label is None:
        if not bound:
            raise CommandError("No process is bound. Bind one in AppConfig.ready(), or give a model TRANSITIONS.")
        return bound
    labels = sorted({binding.model._meta.label for binding in bound})
    try:
        model = apps.get_model(label)
    except (LookupError, ValueError):
        raise CommandError(f"There is no model {label!r}; write app.Model.{close(label, labels)}") from None
    found = ProcessManager.bindings_of(model)
    if not found:
        raise CommandError(f"{model._meta.label} has no process. Bound are: {', '.join(labels) or 'none'}.")
    return [ModelProcessBinding(model, binding.process_class, binding.state_field) for binding in found]


def close(label: str, labels: Iterable[str]) -> str:
    """
    Name the bound model that is meant: by its whole label, or by the model's name alone.
    """
    by_name = [known for known in labels if known.split(".")[-1].lower() == label.split(".")[-1].lower()]
    return f" Did you mean {' or '.join(map(repr, by_name))}?" if by_name else nearest(label, labels)


def named(bindings: list[ModelProcessBinding], name: str | None) -> list[ModelProcessBinding]:
    """
    Return the bindings whose process has this name.
    """
    found = [binding for binding in bindings if name in (None, binding.process_class.process_name)]
    if not found:
        names = sorted({binding.process_class.process_name for binding in bindings})
        raise CommandError(f"No process is called {name!r}; there is {', '.join(names)}.{nearest(name, names)}")
    return found


def drawn(bindings: list[ModelProcessBinding], options: dict[str, Any]) -> list[graph.Diagram]:
    """
    Make the diagrams: a state is marked in one process, an object's states in all of them.
    """
    unknown = set(options["exclude"])
    diagrams = []
    instance = None if options["pk"] is None else object_of(bindings[0].model, options["pk"], options["database"])
    for binding in bindings:
        source = binding if instance is None else binding.process_class(instance, binding.state_field)
        everything = graph.read(binding)
        actions = {move.action for move in everything.moves}
        unknown -= actions
        marks = {} if options["state"] is None else {"state": state_of(everything, options["state"], len(bindings))}
        diagrams.append(graph.read(source, exclude=actions & set(options["exclude"]), **marks))
    if unknown:
        name = min(unknown)
        raise CommandError(
            f"No action is called {name!r}.{nearest(name, {m.action for d in diagrams for m in d.moves})}"
        )
    return diagrams


def state_of(diagram: graph.Diagram, text: str, count: int) -> Any:
    """
    Return the state a text stands for: the words of a terminal can't tell 1 from "1".
    """
    if count > 1:
        raise CommandError("The model has several processes. Choose the one the state belongs to with --process.")
    known = {str(state.value): state.value for state in diagram.states}
    if text not in known:
        states = ", ".join(shown(state.value) for state in diagram.states)
        raise CommandError(f"{diagram.title} has no state {text!r}; there is {states}.{nearest(text, known)}")
    return known[text]


def object_of(model: type[models.Model], key: str, alias: str | None) -> models.Model:
    """
    Read one object.
    """
    manager = model._base_manager
    if alias is not None and alias not in connections:
        raise CommandError(
            f"No database is called {alias!r}; there is {', '.join(connections)}.{nearest(alias, connections)}"
        )
    try:
        return manager.using(alias).get(pk=key) if alias else manager.get(pk=key)
    except ObjectDoesNotExist:
        raise CommandError(f"There is no {model._meta.label} with the primary key {key}.") from None
    except (ValueError, ValidationError, OverflowError):
        raise CommandError(f"{key!r} is no primary key of {model._meta.label}.") from None
    except DatabaseError as error:
        raise CommandError(f"{model._meta.label} can't be read: {str(error).strip().splitlines()[0]}") from None


def written(diagrams: list[graph.Diagram], form: str) -> str:
    """
    Write diagrams one after the other.
    """
    if form == "json":
        return json.dumps([graph.facts(diagram) for diagram in diagrams], indent=2, ensure_ascii=False) + "\n"
    texts = [graph.WRITERS[form](diagram) for diagram in diagrams]
    if form == "mermaid" and len(texts) > 1:
        texts = [
            f"## {diagram.title}\n\n```mermaid\n{text}```\n" for diagram, text in zip(diagrams, texts, strict=True)
        ]
    return "\n".join(texts)
