"""
Prove who may import whom, and that public imports need no configured Django.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
EARLY = (
    "django_logic",
    "django_logic.exceptions",
    "django_logic.conf",
    "django_logic.signals",
    "django_logic.background",
)
IMPORT_EARLY = """
import importlib, sys
module = importlib.import_module(sys.argv[1])
for name in getattr(module, "__all__", ()):
    getattr(module, name)
from django.apps import apps
from django.conf import settings
assert not apps.ready, "the app registry was filled"
print("settings were read" if settings.configured else "nothing was read")
"""


def exists(name: str) -> bool:
    """
    Tell whether a module is there, without loading it.
    """
    return find_spec(name) is not None


def test_modules_import_along_the_contracts_only() -> None:
    """
    The layers of pyproject.toml hold: a declaration knows no writer, the core no extension.
    """
    # In a process of its own: the linter configures logging, which silences every logger that is there already.
    command = f"from importlinter import cli; raise SystemExit(cli.lint_imports({str(PYPROJECT)!r}, no_cache=True))"

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    checked = subprocess.run(
        [sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("name", [name for name in EARLY if exists(name)])
@pytest.mark.parametrize("settings", ["", "tests.settings"])
def test_public_names_import_before_django_is_set_up(name: str, settings: str) -> None:
    """
    A settings module and a models module can import the library: it reads no setting and no model on import.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DJANGO_SETTINGS_MODULE": settings}
    if not settings:
        del environment["DJANGO_SETTINGS_MODULE"]

    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_EARLY, name],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (answer.stderr, answer.stdout) == ("", "nothing was read\n")
