"""
Prove that throw-away servers end with their owner, and that a missing one is never passed over in silence.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from example import services
from tests.run_everywhere import Result, Run

ROOT = Path(__file__).parents[2]
# Starts a server, says where it is, and waits to be ended.
OWNER = """
import sys, threading
from example import services
with services.postgres() as facts:
    print(facts["HOST"], flush=True)
    threading.Event().wait()
"""
# Runs pytest where the driver of MariaDB can't be found.
PYTEST_WITHOUT_DRIVER = """
import sys
sys.modules["MySQLdb"] = None
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/typing"]))
"""
PATIENCE = 30


def wait_until(holds: Callable[[], bool]) -> bool:
    """
    Ask again until it holds, for half a minute at most.
    """
    deadline = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def is_alive(pid: int) -> bool:
    """
    Tell whether a process is there.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("only_postgres")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_server_ends_when_its_owner_is_ended(number: signal.Signals) -> None:
    """
    Ctrl-C, SIGTERM and SIGKILL of the owner all end the server and remove its folder.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        server = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        was_alive = is_alive(server)

        owner.send_signal(number)

    assert was_alive
    assert wait_until(lambda: not is_alive(server) and not folder.exists())


@pytest.mark.usefixtures("only_postgres")
def test_server_that_cannot_start_says_why() -> None:
    """
    A wrong setting shows the end of the server's own log, at once.
    """
    with pytest.raises(services.ServiceFailed, match="no_such_setting"), services.postgres({"no_such_setting": "1"}):
        pytest.fail("the server started")


@pytest.mark.parametrize(
    "facts",
    [
        {"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "USER": "me", "HOST": "/tmp/dl-a"},  # noqa: S108
        {"ENGINE": "django.db.backends.mysql", "NAME": "shop", "USER": "me", "HOST": "/tmp/dl-a/db.sock"},  # noqa: S108
    ],
)
def test_address_of_a_server_survives_the_environment(facts: dict[str, str]) -> None:
    """
    What a started server yields is what a settings module reads back from its URL.
    """
    read = services.database_from_url(services.database_url(facts))

    assert {name: read[name] for name in facts} == facts


@pytest.mark.parametrize(
    ("required", "status", "word"), [("", 0, "SKIPPED, nothing was tested"), ("1", 1, "DL_REQUIRE_SERVICES is set")]
)
def test_missing_service_skips_the_run_in_one_line_or_fails_it(required: str, status: int, word: str) -> None:
    """
    A database that can't be had is named with its remedy, and fails the run when services are required.
    """
    environment = {**os.environ, "DL_DATABASE": "mariadb", "DL_REQUIRE_SERVICES": required}
    environment.pop("DL_DATABASE_URL", None)

    run = subprocess.run(
        [sys.executable, "-c", PYTEST_WITHOUT_DRIVER],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.returncode, word in run.stdout, "libmariadb-dev" in run.stdout) == (status, True, True)


@pytest.mark.parametrize(
    ("line", "status", "result"),
    [
        ("==== 412 passed, 3 skipped in 61.20s (0:01:01) ====", 0, Result.PASSED),
        ("1 failed, 411 passed in 61.20s", 1, Result.FAILED),
        ("1 passed, 1 error in 2.00s", 1, Result.FAILED),
        ("no tests ran in 0.01s", 5, Result.FAILED),
        ("3 skipped in 0.01s", 0, Result.FAILED),
        ("! _pytest.outcomes.Exit: SKIPPED, nothing was tested: no server !", 0, Result.SKIPPED),
        ("Segmentation fault", -11, Result.FAILED),
    ],
)
def test_run_is_judged_by_what_it_tested(line: str, status: int, result: Result) -> None:
    """
    A run passes when pytest says so and at least one test passed; only a named missing service is a skip.
    """
    run = Run("sqlite")

    run.read(line + "\n")
    run.end(status)

    assert run.result == result
