"""
Start one worker process per kit and talk to it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.catalogue import Kit
from harness.environments import EnvironmentUnavailable, interpreter
from harness.servers import HOST, SUPERUSER, Postgres

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT.parent / "src"
ANSWER_SECONDS = 600.0


class KitUnavailable(Exception):
    """A kit or one of its contenders cannot answer."""


@dataclass(slots=True, kw_only=True)
class Member:
    """
    One running worker and what it said about itself.
    """

    kit: Kit
    process: subprocess.Popen[str]
    labels: dict[str, str] = field(default_factory=dict)
    extras: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        """
        Send one request and wait for its answer.

        Raises: KitUnavailable with the worker's own words, or when it died or fell silent.
        """
        if self.process.stdin is None or self.process.stdout is None:
            raise KitUnavailable("the worker has no pipes")
        try:
            self.process.stdin.write(json.dumps({"do": action, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise KitUnavailable("the worker died") from error
        readable, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS)
        if not readable:
            self.process.kill()
            raise KitUnavailable(f"no answer to {action!r} in {ANSWER_SECONDS:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise KitUnavailable(f"the worker died during {action!r} (exit {self.process.wait()})")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise KitUnavailable(answer["error"])
        return answer


@dataclass(slots=True, kw_only=True)
class Crew:
    """
    Every worker that started, and why the others did not.
    """

    members: list[Member] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


@contextmanager
def crew(
    kits: Sequence[Kit], server: Postgres, redis_url: str | None, log: Path, *, refresh: bool = False
) -> Iterator[Crew]:
    """
    Start the workers of the kits for the length of the block.
    """
    gathered = Crew()
    with ExitStack() as stack:
        output = stack.enter_context(log.open("w"))
        for kit in kits:
            print(f"preparing {kit.name} …", file=sys.stderr)
            try:
                if kit.needs_redis and redis_url is None:
                    raise KitUnavailable("redis-server is not installed; install it (apt-get install redis-server)")
                python = interpreter(kit.name, kit.requirements, refresh=refresh) if kit.is_isolated else None
                server.create_database(kit.name)
                member = stack.enter_context(_member(kit, python, _environment(kit, server, redis_url), output))
                _introduce(member)
            except (KitUnavailable, EnvironmentUnavailable) as error:
                gathered.missing[kit.name] = str(error)
            else:
                gathered.members.append(member)
        yield gathered


def _introduce(member: Member) -> None:
    packages = ["Django", "psycopg", *member.kit.packages]
    about = member.ask("load", kit=member.kit.module, packages=packages)
    member.labels, member.extras = about["contenders"], tuple(about["extras"])
    member.versions = about["versions"]


def _environment(kit: Kit, server: Postgres, redis_url: str | None) -> dict[str, str]:
    # The source tree is visible to our own kit only: elsewhere it would hide the published package.
    paths = [str(ROOT), str(SOURCE)] if kit.has_library else [str(ROOT)]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "DJANGO_SETTINGS_MODULE": "harness.settings",
        "BENCH_APPS": ",".join(kit.apps),
        "BENCH_DB_HOST": HOST,
        "BENCH_DB_PORT": str(server.port),
        "BENCH_DB_USER": SUPERUSER,
        "BENCH_DB_NAME": kit.name,
        "BENCH_REDIS_URL": redis_url if kit.needs_redis and redis_url else "",
    }


@contextmanager
def _member(kit: Kit, python: Path | None, environment: dict[str, str], log: Any) -> Iterator[Member]:
    process = subprocess.Popen(  # noqa: S603 (our own worker, no shell)
        [str(python or sys.executable), "-m", "harness.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    try:
        yield Member(kit=kit, process=process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
