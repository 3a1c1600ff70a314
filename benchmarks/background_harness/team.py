"""
Start one controller process per kit: the synchronous harness's worker loop with the settings of this benchmark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from harness.catalogue import Kit
from harness.crew import ROOT, SOURCE, Crew, KitUnavailable, Member
from harness.environments import EnvironmentUnavailable, interpreter
from harness.servers import HOST, SUPERUSER, Postgres

# A controller ends its workers before it goes, which takes some of them a while.
GOODBYE_SECONDS = 20


@contextmanager
def team(
    kits: Sequence[Kit],
    server: Postgres,
    redis_url: str | None,
    log: Path,
    *,
    refresh: bool = False,
    settings: str = "background_harness.settings",
) -> Iterator[Crew]:
    """
    Start the controllers of the kits, with these Django settings, for the length of the block.
    """
    gathered = Crew()
    with ExitStack() as stack:
        output = stack.enter_context(log.open("w"))
        for kit in kits:
            print(f"preparing {kit.name} …", file=sys.stderr)
            try:
                if kit.needs_redis and redis_url is None:
                    raise KitUnavailable("redis-server is not installed; install it (apt-get install redis-server)")
                python = _python(kit, refresh=refresh)
                server.create_database(kit.name)
                environment = {**_environment(kit, server, redis_url), "DJANGO_SETTINGS_MODULE": settings}
                member = stack.enter_context(_member(kit, python, environment, output))
                _introduce(member)
            except (KitUnavailable, EnvironmentUnavailable) as error:
                gathered.missing[kit.name] = str(error)
            else:
                gathered.members.append(member)
        yield gathered


def _python(kit: Kit, *, refresh: bool) -> Path | None:
    if not kit.is_isolated:
        return None
    return interpreter(kit.name, kit.requirements, refresh=refresh, least=kit.least_python)


def _introduce(member: Member) -> None:
    packages = ["Django", "psycopg", *member.kit.packages]
    about = member.ask("load", kit=member.kit.module, packages=packages)
    member.extras, member.versions = tuple(about["extras"]), about["versions"]
    member.labels = {key: profile["label"] for key, profile in member.ask("extra", key="describe").items()}


def _environment(kit: Kit, server: Postgres, redis_url: str | None) -> dict[str, str]:
    # The source tree is visible to our own kits only: elsewhere it would hide the published package.
    paths = [str(ROOT), str(SOURCE)] if kit.has_library else [str(ROOT)]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "BENCH_APPS": ",".join(kit.apps),
        "BENCH_DB_HOST": HOST,
        "BENCH_DB_PORT": str(server.port),
        "BENCH_DB_USER": SUPERUSER,
        "BENCH_DB_NAME": kit.name,
        "BENCH_REDIS_URL": redis_url if kit.needs_redis and redis_url else "",
        # What libpq and programs on top of it read.
        "PGHOST": HOST,
        "PGPORT": str(server.port),
        "PGUSER": SUPERUSER,
        "PGDATABASE": kit.name,
    }


@contextmanager
def _member(kit: Kit, python: Path | None, environment: dict[str, str], log: IO[str]) -> Iterator[Member]:
    process = subprocess.Popen(  # noqa: S603 (our own controller, no shell)
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
            process.wait(timeout=GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
