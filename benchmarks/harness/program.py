"""
What every benchmark does as a program: run, print its table, write its rounds, and end what it started.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from harness.servers import ServerUnavailable

__all__ = ["choose", "run_program"]


def run_program(
    name: str,
    options: argparse.Namespace,
    measure: Callable[[argparse.Namespace, ExitStack], tuple[dict[str, Any], str]],
) -> int:
    """
    Measure, and return the exit status.
    """
    options.json.parent.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with ExitStack() as stack:
            document, text = measure(options, stack)
    except ServerUnavailable as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted; what it started is stopped", file=sys.stderr)
        return 130
    print(text)
    options.json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    print(f"every round: {options.json.name}", file=sys.stderr)
    return 0


def choose(parser: argparse.ArgumentParser, options: argparse.Namespace, name: str, known: set[str]) -> None:
    """
    Turn a list of names into a set, all of them for none, and refuse those nobody knows.
    """
    given = getattr(options, name)
    chosen = set(given.split(",")) if given else known
    if unknown := chosen - known:
        parser.error(f"--{name}: unknown {', '.join(sorted(unknown))}; choose from {', '.join(sorted(known))}")
    setattr(options, name, chosen)
