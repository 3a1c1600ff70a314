"""
Give each peer an interpreter environment of its own, with our Django and our driver.

Environments are cached under ``benchmarks/.venvs`` by the text of their requirements.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".venvs"
INSTALL_SECONDS = 600


class EnvironmentUnavailable(Exception):
    """A peer cannot be installed."""


def interpreter(
    name: str, requirements: Sequence[str], *, refresh: bool = False, least: tuple[int, int] = (3, 11)
) -> Path:
    """
    Return the interpreter of a peer's environment, building it on first use; of our Python where the peer runs on it.

    Raises: EnvironmentUnavailable with the installer's last words.
    """
    python = _python(least)
    wanted = [f"Django=={version('Django')}", f"psycopg[binary]=={version('psycopg')}", *requirements]
    text = "\n".join([sys.version if python == sys.executable else python, *wanted])
    home = CACHE / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    finished = home / "requirements.txt"
    if finished.exists() and not refresh:
        return home / "bin" / "python"
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(exist_ok=True)
    _run([python, "-m", "venv", str(home)])
    _run([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted])
    # Written last: a half-built environment is built again.
    finished.write_text("\n".join(wanted) + "\n")
    return home / "bin" / "python"


def _python(least: tuple[int, int]) -> str:
    if sys.version_info >= least:
        return sys.executable
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(least[1], least[1] + 4):
        name = f"python{least[0]}.{minor}"
        # pyenv's own first: what it puts on PATH may refuse to start.
        found = next((str(path) for path in versions.glob(f"*/bin/{name}")), None) or shutil.which(name)
        if found:
            return found
    wanted, ours = ".".join(map(str, least)), ".".join(map(str, sys.version_info[:3]))
    raise EnvironmentUnavailable(f"it needs Python {wanted} or newer; this is {ours}, and no other was found")


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 (the interpreter itself, no shell)
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentUnavailable(f"the installer took over {INSTALL_SECONDS} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no output"]
        raise EnvironmentUnavailable(f"the installer failed: {lines[-1][:300]}")
