"""
Which files the audit reads, and the comments in them that allow a write.
"""

from __future__ import annotations

import io
import os
import re
import tokenize
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import django_logic

__all__ = ["allowances", "python_files"]

#: What the library writes is the writer's business.
LIBRARY = Path(django_logic.__file__).resolve().parent
FOREIGN = {"__pycache__", "node_modules", "site-packages", "dist-packages"}
ALLOWANCE = re.compile(r"#\s*dl:\s*allow\b[\s:—–-]*(.*)")


def python_files(roots: Sequence[Path], *, exclude: Sequence[str] = (), migrations: bool = False) -> Iterator[Path]:
    """
    Yield the Python files below folders, and the files that are named themselves, each once, sorted.

    Hidden folders, virtual environments and installed packages are passed over, ``migrations`` unless asked for.
    """
    seen: set[Path] = set()
    for root in roots:
        for path in [root] if root.is_file() else below(root, migrations):
            real = path.resolve()
            if real not in seen and not real.is_relative_to(LIBRARY) and not is_excluded(path, root, exclude):
                seen.add(real)
                yield path


def below(root: Path, migrations: bool) -> Iterator[Path]:
    """
    Yield the Python files of a folder and its subfolders.
    """
    for folder, subfolders, names in os.walk(root):
        here = Path(folder)
        subfolders[:] = sorted(name for name in subfolders if is_own(here / name, migrations))
        yield from (here / name for name in sorted(names) if name.endswith((".py", ".pyi")))


def is_own(folder: Path, migrations: bool) -> bool:
    """
    Tell whether a folder holds source text of the project.
    """
    name = folder.name
    if name.startswith(".") or name in FOREIGN or (folder / "pyvenv.cfg").exists():
        return False
    return migrations or name != "migrations"


def is_excluded(path: Path, root: Path, patterns: Sequence[str]) -> bool:
    """
    Tell whether a pattern fits the path, the path below its root, or one folder or name on it.
    """
    inside = path.relative_to(root) if path != root else Path(path.name)
    texts = {path.as_posix(), inside.as_posix(), *inside.parts}
    return any(fnmatch(text, pattern.rstrip("/")) for text in texts for pattern in patterns)


def allowances(text: str) -> dict[int, str]:
    """
    Return the reasons of ``# dl: allow <reason>`` comments by line, an empty one where none is given.
    """
    found: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (comment := ALLOWANCE.search(token.string)):
            found[token.start[0]] = comment[1].strip()
    return found
