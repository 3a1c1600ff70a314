"""
Read a page's fenced blocks, and run its Python the way a reader would: from top to bottom, in one project.

A block that begins with a file's name, such as ``# shop/process.py``, is run as a part of that module.
"""

from __future__ import annotations

import re
import shlex
import sys
import unittest
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from django.apps import AppConfig, apps
from django.core.management import CommandError, call_command
from django.db import connection, models

from django_logic import ProcessManager, signals

FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=ticks)[ ]*$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (shop/\w+)\.py\n")
#: How the last line of a traceback looks: a page shows it below the block that raises.
RAISED = re.compile(r"(?:\w+\.)*[A-Z]\w*: \S")
#: The modules of the project, all of them one namespace.
MODULES = ("models", "process", "apps", "views", "urls", "hooks")
SIGNALS = (
    signals.transition_started,
    signals.transition_finished,
    signals.transition_failed,
    signals.transition_refused,
)


@dataclass(frozen=True, slots=True)
class Block:
    """
    Hold one fenced block: its language, its text, and the line of the page on which the text begins.
    """

    language: str
    text: str
    line: int

    @property
    def is_declaration(self) -> bool:
        """
        Tell whether it is a part of the project, and not a use of it.
        """
        return self.language == "python" and FILE_NAME.match(self.text) is not None

    @property
    def shows_an_error(self) -> bool:
        """
        Tell whether it is the text of an exception.
        """
        return self.language == "text" and RAISED.match(self.text) is not None


def blocks_of(page: Path) -> list[Block]:
    """
    Return the fenced blocks of a page in their order.
    """
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["info"].strip(), found["body"], text.count("\n", 0, found.start("body")))
        for found in FENCE.finditer(text)
    ]


class Project:
    """
    Hold what the blocks have declared so far, and run more of them.
    """

    def __init__(self) -> None:
        self.module = ModuleType("shop.models")
        self.tables: list[type[models.Model]] = []
        self.known: set[type] = set()

    def run(self, page: Path, block: Block) -> str:
        """
        Run a Python block; return the last line of its traceback, empty when it raises nothing.

        Its lines have the numbers they have on the page, so that a failing assertion is found there.
        """
        named = FILE_NAME.match(block.text)
        vars(self.module)["__name__"] = named[1].replace("/", ".") if named else "shop.models"
        code = compile("\n" * block.line + block.text, str(page), "exec")
        try:
            exec(code, vars(self.module))  # noqa: S102 (running what the pages show is the point)
        except AssertionError:
            raise
        except Exception as error:
            return last_line(error)
        self.install()
        return self.test()

    def install(self) -> None:
        """
        Make tables for new models, and start new apps.
        """
        for model in apps.get_app_config("shop").get_models():
            if model not in self.tables:
                self.tables.append(model)
                if model._meta.managed and not model._meta.proxy:
                    with connection.schema_editor() as editor:
                        editor.create_model(model)
        for config in self.new_classes(AppConfig):
            config.ready(apps.get_app_config("shop"))

    def test(self) -> str:
        """
        Run new test cases; return what is wrong.
        """
        cases = self.new_classes(unittest.TestCase)
        suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, cases))
        result = unittest.TestResult()
        suite.run(result)
        return "".join(told for _case, told in [*result.errors, *result.failures])

    def new_classes(self, kind: type) -> list[Any]:
        """
        Return the classes of a kind that the pages have declared since it was asked last.
        """
        found = [value for value in vars(self.module).values() if isinstance(value, type) and issubclass(value, kind)]
        new = [value for value in found if value.__module__.startswith("shop.") and value not in self.known]
        self.known.update(new)
        return new

    def remove(self) -> None:
        """
        Forget everything that was declared.
        """
        for model in reversed(self.tables):
            ProcessManager.unbind_model_process(model)
            if model._meta.managed and not model._meta.proxy:
                with connection.schema_editor() as editor:
                    editor.delete_model(model)
        apps.all_models["shop"].clear()
        apps.clear_cache()


@contextmanager
def project() -> Iterator[Project]:
    """
    Give an empty project named ``shop`` for the length of a block.
    """
    made = Project()
    receivers = [(signal, list(signal.receivers)) for signal in SIGNALS]
    bindings = list(ProcessManager.bindings)
    ProcessManager.bindings.clear()  # those of the other tests, which no page knows of
    names = [f"shop.{name}" for name in MODULES]
    sys.modules |= dict.fromkeys(names, made.module)
    try:
        yield made
    finally:
        made.remove()
        ProcessManager.bindings[:] = bindings
        for name in names:
            del sys.modules[name]
        for signal, before in receivers:
            signal.receivers = before
            signal.sender_receivers_cache.clear()


def run_page(made: Project, page: Path, blocks: Sequence[Block]) -> Iterator[str]:
    """
    Run a page's Python and commands in their order, and yield what is not as it is shown.
    """
    for block, after in pairwise([*blocks, Block("", "", 0)]):
        outcomes: list[tuple[str, str]] = []
        if block.language == "python":
            outcomes = [(made.run(page, block), after.text if after.shows_an_error else "")]
        elif block.language == "console":
            outcomes = [(printed_by(arguments), shown) for arguments, shown in commands_in(block)]
        for found, shown in outcomes:
            if same(found) != same(shown):
                yield f"{page}:{block.line + 1}: found\n{found or 'nothing'}\ninstead of\n{shown or 'nothing'}"


def last_line(error: Exception) -> str:
    """
    Return the last line of a traceback, without the hints that newer Pythons put behind it.
    """
    kind = type(error)
    where = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{where}{kind.__qualname__}: {error}"


def same(text: str) -> str:
    """
    Return text in one line, since a page breaks long messages, and without addresses in memory.
    """
    return re.sub(r" at 0x\w+", " at 0x…", " ".join(text.split()))


def commands_in(block: Block) -> Iterator[tuple[list[str], str]]:
    """
    Yield the library's commands that a console block shows with their output: the arguments, and what is printed.
    """
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        typed, _, output = part.partition("\n")
        words = shlex.split(typed)
        if words[:2] == ["python", "manage.py"] and words[2].startswith("dl_") and output.strip():
            yield words[2:], output


def printed_by(arguments: Sequence[str]) -> str:
    """
    Return what a command writes, errors as the terminal shows them.
    """
    out = StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=out)
    except CommandError as error:
        return f"{out.getvalue()}CommandError: {error}\n"
    except SystemExit:
        pass
    return out.getvalue()


def write_files(folder: Path, blocks: Sequence[Block]) -> Path:
    """
    Lay down the files that blocks are named after, for commands that read source text; return the folder.
    """
    (folder / "shop").mkdir(parents=True)
    for block in blocks:
        named = FILE_NAME.match(block.text)
        if named:
            (folder / f"{named[1]}.py").write_text(block.text, encoding="utf-8")
    return folder
