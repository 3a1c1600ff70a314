"""
The demo as a newcomer runs it: in processes of its own, on the databases it starts.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.db import connection

from example import services
from example.story.shown import expression_of
from tests import servers

pytestmark = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="the demo starts databases of its own; the run on PostgreSQL shows it"
)

ROOT = Path(__file__).parents[2]
CHAPTERS = 14
PATIENCE_SECONDS = 120
ALL_TOLD = f"All {CHAPTERS} chapters came out as told"

#: A line of every chapter that only its own outcome can print, by the words of the library or the database.
TELLING_LINES = (
    r"draft +(current, )?initial",
    r"✓ history has one row",
    r"\[False, True\]",
    r"InvalidTransition: OrderProcess\.cancel refused for Order \d+ in state 'fulfilled'",
    r"IntegrityError: shop_order_moves",
    r"✓ the warehouse released the goods",
    r"WrongAmount: 25\.00 was asked for, 19\.90 arrived",
    r"✓ the courier was asked three times, and has one booking",
    r"\[lost\] (?s:.*)✓ the order arrived, with one parcel",
    r"✓ none has arrived\n  ✓ no attempt is spent(?s:.*)order \d+  3     \d+        3                   0\n",
    r"✓ some came twice(?s:.*)✓ its inbox took it once",
    r"too large: \d+ bytes, the limit is 2000(?s:.*)\n  1 dead event put back\.",
    r"Fri 11:02  fulfilled → cancelled +refused +ada +too late",
    r"processing +\d+ +.* h .* d .*\n(?s:.*)Everything agrees",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """
    Give a temporary folder whose path is short enough for a socket and open to the server's account.
    """
    with tempfile.TemporaryDirectory(prefix="dl-demo-test-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def need(database: str) -> None:
    """
    Skip a test without a PostgreSQL for the demo to start, or fail it when one is required.
    """
    if database == "postgresql" and not has_postgres():
        (pytest.fail if servers.are_required() else pytest.skip)("no PostgreSQL server or driver is installed")


@cache
def has_postgres() -> bool:
    """
    Tell whether the demo could start a PostgreSQL, by starting one.
    """
    try:
        with services.postgres():
            return find_spec("psycopg") is not None
    except services.ServiceMissing:
        return False


def environment(folder: Path, **more: str) -> dict[str, str]:
    """
    Return what a newcomer's shell holds: no database, no settings module, and a temporary folder to watch.
    """
    ours = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "NO_COLOR", "PYTHONPATH")
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    return {**inherited, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", **more}


def command(database: str, *words: str) -> list[str]:
    """
    Return the demo's command line.
    """
    return [sys.executable, "-m", "example", *words, *(["--sqlite"] if database == "sqlite" else [])]


def run(command_line: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    """
    Run a command from the repository and wait for its end.
    """
    return subprocess.run(
        command_line, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@contextmanager
def started(command_line: list[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """
    Start a command; whatever happens to the test, it is ended.
    """
    with subprocess.Popen(
        command_line, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def is_running(pid: int) -> bool:
    """
    Tell whether a process exists.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def children_of(folder: Path) -> list[str]:
    """
    List the command lines of all processes that were given this temporary folder, where the system can tell.
    """
    found = []
    for facts in Path("/proc").glob("[0-9]*"):
        # Processes that have just ended, and those of others, say nothing.
        with suppress(OSError):
            if f"TMPDIR={folder}".encode() in (facts / "environ").read_bytes().split(b"\0"):
                found.append((facts / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_demo_tells_every_chapter_and_leaves_nothing(database: str, folder: Path) -> None:
    """
    `--check` tells all chapters as promised on its own database, exits with 0, and leaves neither file nor server.
    """
    need(database)

    finished = run(command(database, "--check"), **environment(folder))

    assert (finished.returncode, finished.stderr) == (0, "")
    assert [line for line in TELLING_LINES if not re.search(line, finished.stdout)] == []
    assert ALL_TOLD in finished.stdout
    assert f"({database}, " in finished.stdout
    assert "✗" not in finished.stdout
    assert "\033" not in finished.stdout
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("database", "number", "place"),
    [
        ("sqlite", signal.SIGINT, f"6 of {CHAPTERS}"),
        ("sqlite", signal.SIGTERM, "waits for the label"),
        ("sqlite", signal.SIGINT, "in the middle of a batch"),
        ("postgresql", signal.SIGINT, f"3 of {CHAPTERS}"),
        ("postgresql", signal.SIGTERM, "waits for the label"),
        ("postgresql", signal.SIGTERM, "in the middle of a batch"),
        ("postgresql", signal.SIGHUP, f"{CHAPTERS} of {CHAPTERS}"),
    ],
)
def test_demo_stops_what_it_started_when_a_signal_ends_it(
    database: str, folder: Path, number: signal.Signals, place: str
) -> None:
    """
    Ctrl-C, SIGTERM and a closed terminal end the demo at any place, with its server, its workers, relays and files.
    """
    need(database)
    with started(command(database, "--check"), environment(folder)) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if place in line:
                break
        pids = [int(file.read_text().split()[0]) for file in folder.glob("*/data/postmaster.pid")]
        was_running = [is_running(pid) for pid in pids]

        demo.send_signal(number)
        output, errors = demo.communicate(timeout=PATIENCE_SECONDS)

    assert was_running == ([True] if database == "postgresql" else [])
    assert demo.returncode == 128 + number
    assert errors.strip() == "Stopped. Nothing that was started is left."
    assert ALL_TOLD not in output
    assert [pid for pid in pids if is_running(pid)] == []
    assert children_of(folder) == []
    assert list(folder.iterdir()) == []


def test_demo_fails_when_the_database_lets_an_illegal_move_pass(folder: Path) -> None:
    """
    A chapter that does not come out as told is named in a line of its own, and the exit status is 1.
    """
    environ = environment(folder, DATABASE_URL=f"sqlite:///{folder / 'shop.sqlite3'}")
    assert run([sys.executable, "example/manage.py", "migrate"], **environ).returncode == 0
    with closing(sqlite3.connect(folder / "shop.sqlite3")) as shop:
        triggers = shop.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'shop_order'")
        for (name,) in triggers.fetchall():
            shop.execute(f'DROP TRIGGER "{name}"')
        shop.commit()

    finished = run(command("named", "--check"), **environ)

    assert finished.returncode == 1
    assert "\nFAILED chapter 5, past the process: Order.objects.filter" in finished.stdout
    assert ALL_TOLD not in finished.stdout


def test_demo_runs_again_on_the_database_it_is_given(folder: Path) -> None:
    """
    A database named in DATABASE_URL is used, and a second run on it comes out the same.
    """
    environ = environment(folder, DATABASE_URL=f"sqlite:///{folder / 'shop.sqlite3'}")

    finished = [run(command("named", "--check"), **environ) for _ in range(2)]

    assert [(entry.returncode, entry.stderr) for entry in finished] == [(0, ""), (0, "")]
    assert [file.name for file in folder.iterdir()] == ["shop.sqlite3"]


def test_demo_does_not_touch_somebody_elses_database(folder: Path) -> None:
    """
    A database with foreign tables is refused with what was found, and nothing is created in it.
    """
    with closing(sqlite3.connect(folder / "theirs.sqlite3")) as theirs:
        theirs.execute("CREATE TABLE invoices (id integer)")
    environ = environment(folder, DATABASE_URL=f"sqlite:///{folder / 'theirs.sqlite3'}")

    finished = run(command("named", "--check"), **environ)

    assert finished.returncode == 2
    assert "holds tables that are not the demo's (invoices)" in finished.stderr
    assert "Traceback" not in finished.stderr
    with closing(sqlite3.connect(folder / "theirs.sqlite3")) as theirs:
        assert theirs.execute("SELECT name FROM sqlite_master").fetchall() == [("invoices",)]


@pytest.mark.parametrize("url", ["nonsense://x/y", "postgres://nobody@127.0.0.1:1/none"])
def test_demo_names_a_database_it_can_not_reach(folder: Path, url: str) -> None:
    """
    A DATABASE_URL that leads nowhere ends the demo with status 2 and words instead of a traceback.
    """
    finished = run(command("named", "--check"), **environment(folder, DATABASE_URL=url))

    assert finished.returncode == 2
    assert re.search("DATABASE_URL can't be read|database can't be reached", finished.stderr)
    assert "Traceback" not in finished.stderr


def read_until(terminal: int, text: str) -> str:
    """
    Read what appears on a terminal until a text does.
    """
    seen, deadline = "", time.monotonic() + PATIENCE_SECONDS
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"{text!r} did not appear in {seen!r}"
        seen += os.read(terminal, 65536).decode()
    return seen


def test_demo_waits_for_enter_on_a_terminal(folder: Path) -> None:
    """
    On a terminal each chapter waits for Enter, in colours, and Ctrl-C at the prompt ends the demo.
    """
    ours, theirs = pty.openpty()
    demo = subprocess.Popen(
        command("sqlite"), cwd=ROOT, env=environment(folder), stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True, preexec_fn=lambda: os.close(ours),
    )  # fmt: skip
    try:
        first = read_until(ours, "Press Enter")
        os.write(ours, b"\n")
        second = read_until(ours, "Press Enter")
        demo.send_signal(signal.SIGINT)
        last = read_until(ours, "Stopped.")
        status = demo.wait(PATIENCE_SECONDS)
    finally:
        demo.terminate()
        demo.wait()
        os.close(ours)
        os.close(theirs)

    assert f"1 of {CHAPTERS}" in first
    assert f"2 of {CHAPTERS}" not in first
    assert "\033[" in first
    assert f"2 of {CHAPTERS}" in second
    assert f"3 of {CHAPTERS}" not in second + last
    assert status == 130
    assert list(folder.iterdir()) == []


def test_shop_is_complete_as_it_is_copied(folder: Path) -> None:
    """
    The example passes all checks but the one that warns of workers on SQLite, and its migrations are up to date.
    """
    environ = environment(folder, DATABASE_URL="sqlite://:memory:")

    checks = run([sys.executable, "example/manage.py", "check", "--fail-level", "DEBUG"], **environ)
    migrations = run([sys.executable, "example/manage.py", "makemigrations", "--check", "--dry-run", "shop"], **environ)

    assert (checks.returncode, checks.stdout) == (0, "System check identified no issues (1 silenced).\n")
    assert (migrations.returncode, migrations.stdout) == (0, "No changes detected in app 'shop'\n")


def test_shown_code_is_the_code_that_runs() -> None:
    """
    The story prints a lambda's own text, however many lines it has, and refuses to guess between two.
    """
    short = expression_of(lambda: 1 + 1)
    long = expression_of(
        lambda: sum(
            number for number in range(3)
        )
    )  # fmt: skip
    two = (lambda: 1, lambda: 2)

    assert short == "1 + 1"
    assert long == "sum(\n    number for number in range(3)\n)"
    with pytest.raises(ValueError, match="expected one lambda, found 2"):
        expression_of(two[0])
