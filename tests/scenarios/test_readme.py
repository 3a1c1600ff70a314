"""
Prove that what the README shows runs: its files make a project, its other Python is typed into that project's shell.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A block that starts like this is (a part of) a file.
FILE = re.compile(r"# (\S+\.py)\n")
ANY_FENCE = re.compile(r"^\s*(?:```|~~~)\s*(?:python|py|pycon)\b", re.MULTILINE | re.IGNORECASE)

SETTINGS = """
DEBUG = True
SECRET_KEY = "for tests only"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_logic",
    "django_logic.background",
    "django_logic.outbox",
    "shop",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "readme.sqlite3"}}
USE_TZ = True
"""
SHELL = "import django\ndjango.setup()\n"


def blocks() -> list[str]:
    """
    Read the Python examples of the README in their order.
    """
    return BLOCK.findall(README.read_text(encoding="utf-8"))


def write_project(folder: Path) -> list[str]:
    """
    Write the blocks that are files, parts of one file after each other; return the others in their order.
    """
    (folder / "readme_settings.py").write_text(SETTINGS, encoding="utf-8")
    typed = []
    for block in blocks():
        named = FILE.match(block)
        if named is None:
            typed.append(block)
            continue
        path = folder / named[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{block}\n")
    return typed


def run(folder: Path, *arguments: str) -> str:
    """
    Run Python in the project's folder; every warning is an error.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        "DJANGO_SETTINGS_MODULE": "readme_settings",
    }
    answer = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


def test_readme_shows_python_and_hides_none_of_it() -> None:
    """
    There is an example to run, and every fence with Python in it is read by this test.
    """
    text = README.read_text(encoding="utf-8")

    assert len(blocks()) > 0
    assert len(blocks()) == len(ANY_FENCE.findall(text))


def test_every_python_block_of_the_readme_runs(tmp_path: Path) -> None:
    """
    A reader who pastes the files, migrates, and types the rest into a shell sees every assertion hold.
    """
    typed = write_project(tmp_path)

    checked = run(tmp_path, "-m", "django", "check")
    run(tmp_path, "-m", "django", "makemigrations", "shop", "-v", "0")
    run(tmp_path, "-m", "django", "migrate", "-v", "0")
    run(tmp_path, "-c", SHELL + "\n".join(typed))
    tested = run(tmp_path, "-m", "django", "test", "shop")

    assert len(typed) > 0
    assert "shop.Order" not in checked
    assert "Ran 1 test" in tested
