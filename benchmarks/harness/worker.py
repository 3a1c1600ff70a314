"""
Run the contenders of one kit in an interpreter of their own, told what to do in JSON lines.

Requests come on standard input, answers leave on standard output; whatever a library prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import django
from django.core.management import call_command

from harness.contender import Contender

Answer = dict[str, Any]


class Worker:
    """
    Hold the contenders of one kit and answer requests about them.
    """

    def __init__(self, kit: str) -> None:
        """
        Load Django, create the tables and collect the kit's contenders.
        """
        django.setup()
        # Apps without migrations come second: their foreign keys need the tables of the others.
        call_command("migrate", verbosity=0, interactive=False)
        call_command("migrate", run_syncdb=True, verbosity=0, interactive=False)
        module = importlib.import_module(f"kits.{kit}.contenders")
        self._contenders: dict[str, Contender] = {each.key: each for each in module.CONTENDERS}
        self._extras: dict[str, Callable[..., Answer]] = getattr(module, "EXTRAS", {})

    def describe(self, packages: list[str]) -> Answer:
        """
        Name the contenders and the versions in this environment.
        """
        versions = {"Python": platform.python_version()}
        for package in packages:
            try:
                versions[package] = version(package)
            except PackageNotFoundError:
                versions[package] = "not installed"
        labels = {key: each.label for key, each in self._contenders.items()}
        return {"contenders": labels, "extras": sorted(self._extras), "versions": versions}

    def setup(self, key: str) -> Answer:
        """
        Prepare one contender.
        """
        contender = self._contenders[key]
        contender.setup()
        return {"label": contender.label, "statements": contender.statements()}

    def run(self, key: str, moves: int) -> Answer:
        """
        Run one trial.
        """
        return {"seconds": self._contenders[key].run(moves)}

    def extra(self, key: str, **arguments: Any) -> Answer:
        """
        Run a measurement that is not a sequence of single moves.
        """
        return self._extras[key](**arguments)


def main() -> None:
    """
    Answer requests until standard input closes.
    """
    # Libraries may print; only answers may reach the driver.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker: Worker | None = None
    for line in sys.stdin:
        request = json.loads(line)
        action = request.pop("do")
        try:
            if action == "load":
                worker = Worker(request["kit"])
                answer: Answer = worker.describe(request["packages"])
            else:
                answer = getattr(worker, action)(**request)
        except Exception as error:  # the driver prints it in the contender's row
            traceback.print_exc()
            text = " ".join(str(error).split())
            answer = {"error": f"{type(error).__name__}: {text}"[:400]}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
