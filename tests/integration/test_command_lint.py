"""
Promises of `manage.py dl_lint`.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_logic import ProcessManager

ROOT = Path(__file__).parents[2]
WRITE = "def close(order):\n    order.status = 'closed'\n"
ALLOWED = "order.status = 'closed'  # dl: allow restored from the old shop\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """
    Give a folder with one write, one allowed write, one clean file and a migration that writes.
    """
    texts = {
        "shop/views.py": WRITE,
        "shop/imports.py": ALLOWED,
        "shop/models.py": "note = 1\n",
        "shop/migrations/0002.py": WRITE,
        "tests/test_views.py": WRITE,
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def audited(*arguments: Any) -> tuple[str, CommandError | None]:
    """
    Run the command; return what it writes and how it failed, if it did.
    """
    out = io.StringIO()
    try:
        call_command("dl_lint", *map(str, arguments), stdout=out, no_color=True)
    except CommandError as error:
        return out.getvalue(), error
    return out.getvalue(), None


def places(text: str, root: Path) -> list[str]:
    """
    Return where findings are, and their codes.
    """
    return [line.removeprefix(f"{root}/").split(" ")[0] for line in text.splitlines()]


def test_writes_are_listed_and_end_with_status_1(project: Path) -> None:
    """
    Each write is a line, and any of them fails the run.
    """
    text, error = audited(project)

    assert places(text, project) == ["shop/views.py:2:5:", "tests/test_views.py:2:5:"]
    assert error is not None
    assert (str(error), error.returncode) == ("2 findings in 4 files.", 1)


def test_clean_project_passes_and_says_what_was_watched(project: Path) -> None:
    """
    Status 0 comes with what was looked for, so that a run that watched nothing is seen.
    """
    text, error = audited(project, "--exclude", "tests", "--exclude", "views.py")

    assert error is None
    assert text.startswith("No state is written past its process in 2 files. 1 allowed write; list with --allowed.")
    assert "status (app.Order, " in text


def test_allowed_writes_are_listed_on_demand(project: Path) -> None:
    """
    --allowed shows each exception with its reason, and none of them fails the run.
    """
    text, error = audited(project / "shop" / "imports.py", "--allowed")

    assert error is None
    assert "imports.py:1:1: DL001" in text
    assert "(allowed: restored from the old shop)" in text


def test_migrations_are_read_on_demand(project: Path) -> None:
    """
    --migrations reads them too.
    """
    text, error = audited(project / "shop", "--migrations")

    assert places(text, project) == ["shop/views.py:2:5:", "shop/migrations/0002.py:2:5:"]
    assert error is not None


def test_json_is_all_that_is_written(project: Path) -> None:
    """
    --json writes one list, empty when there is nothing.
    """
    found, error = audited(project / "shop", "--json")
    nothing, no_error = audited(project / "shop" / "models.py", "--json")
    allowed, _ = audited(project / "shop" / "imports.py", "--json", "--allowed")

    (finding,) = json.loads(found)
    assert finding["path"] == str(project / "shop" / "views.py")
    assert (finding["line"], finding["column"], finding["code"], finding["allowed"]) == (2, 5, "DL001", "")
    assert error is not None
    assert (json.loads(nothing), no_error) == ([], None)
    assert json.loads(allowed)[0]["allowed"] == "restored from the old shop"


def test_file_that_can_not_be_parsed_fails_the_run(project: Path) -> None:
    """
    A file nobody could audit is one line, and a finding; the others are audited still.
    """
    (project / "shop" / "broken.py").write_text("def (\n")

    text, error = audited(project / "shop")

    assert places(text, project) == ["shop/broken.py:1:5:", "shop/views.py:2:5:"]
    assert "DL000" in text.splitlines()[0]
    assert error is not None


def test_path_that_does_not_exist_is_told_in_one_line(project: Path) -> None:
    """
    A typo in a path never passes for a clean run.
    """
    text, error = audited(project / "shpo")

    assert text == ""
    assert str(error) == f"There is no {project / 'shpo'}. Name files or folders that exist."


def test_project_without_bindings_is_told_that_nothing_was_watched(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Where no process is bound a clean run proves nothing, and says so.
    """
    monkeypatch.setattr(ProcessManager, "bindings", [])

    text, error = audited(project)

    assert text == "No process is bound, so there was nothing to look for.\n"
    assert error is None


def test_command_line_has_documented_exit_codes(project: Path) -> None:
    """
    From a shell the current folder is read: 1 with findings, 0 without, and never a traceback.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "django", "dl_lint", "--settings", "tests.settings"]

    ended = [
        subprocess.run([*command, *rest], capture_output=True, text=True, env=environment, cwd=project)
        for rest in ([], ["--exclude", "tests", "--exclude", "views.py"])
    ]

    assert [run.returncode for run in ended] == [1, 0]
    assert ended[0].stdout.splitlines()[0].startswith("shop/views.py:2:5: DL001 ")
    assert ended[0].stderr == "CommandError: 2 findings in 4 files.\n"
    assert ended[1].stderr == ""
