"""
Promises of `manage.py dl_transitions`.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from django_logic.background import Backoff, run_available
from django_logic.background.management.commands.dl_transitions import Command
from django_logic.background.models import Cancellation
from tests.app.hooked import Boom, stored
from tests.app.models import Ticket
from tests.background.flows import Flow, message, new_ticket, work
from tests.background.onlookers import TABLE, enter_worker, lock, session
from tests.worker.harness import ROOT, database_facts, until
from tests.worker_app.models import Job

pytestmark = pytest.mark.django_db(transaction=True)

IN_TEN_MINUTES = Backoff(first=600, factor=1, limit=600, jitter=0)
KEYS = [
    *("id", "model", "instance_id", "process", "transition", "queue", "errors_count", "attempts_started"),
    *("age_seconds", "code", "detail", "next_command"),
]


def failing(instance: Any, **keywords: Any) -> None:
    """
    Fail.
    """
    raise Boom("no route")


@pytest.fixture
def ticket(flow: Flow) -> Ticket:
    """
    Give an object whose work has failed once and pauses; another one waits for a worker in another queue.
    """
    flow(
        work(failing, queue="a", retry=IN_TEN_MINUTES, sources=["new", "failed"]),
        work(action="other", queue="the others"),
    )
    first, second = new_ticket(), new_ticket()
    first.flow.go()
    run_available()
    second.flow.other()
    return first


def run(*arguments: str) -> tuple[str, str]:
    """
    Run the command and return what it wrote on standard output and standard error.
    """
    out, errors = io.StringIO(), io.StringIO()
    call_command("dl_transitions", *arguments, stdout=out, stderr=errors)
    return out.getvalue(), errors.getvalue()


def refused(*arguments: str) -> str:
    """
    Run the command, which has to be refused with exit code 1, and return the words.
    """
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    assert caught.value.returncode == 1
    return str(caught.value)


def test_every_line_ends_with_the_next_command(ticket: Ticket) -> None:
    """
    One line a row: key, object, process and transition, queue, errors, age, the reason in full, what to type.
    """
    out, _ = run()

    first, second = out.splitlines()[:2]
    pk = message(ticket).pk
    assert first.startswith(f"{pk}  app.Ticket#{ticket.pk}  flow.go  queue a  errors 1  age ")
    assert "  retry_pause_until: " in first
    assert first.endswith(f"after error 1 of 5: Boom: no route. Next: manage.py dl_transitions --send {pk}")
    assert second.endswith("Next: manage.py dl_worker --queues 'the others'")


def test_reasons_are_counted_below_the_list(ticket: Ticket) -> None:
    """
    A table tells how many rows of each queue have which reason, and how old the oldest is.
    """
    out, _ = run()

    told = [" ".join(line.split()[:-2]) for line in out.splitlines()[3:-1]]
    assert told == ["queue reason", "a retry_pause_until 1", "the others no_worker_for_queue 1"]
    assert out.endswith("2 open rows.\n")


def test_nothing_open_is_said_in_a_line() -> None:
    """
    Without open rows there is nothing to list.
    """
    assert run() == ("0 open rows.\n", "")


def test_queues_narrow_the_list_with_blanks_around_their_names(ticket: Ticket) -> None:
    """
    Names are parted by commas, blanks around them do not count, those inside do.
    """
    out, errors = run("--queues", " the others , a,")
    only, _ = run("--queues", "the others")

    assert (out.endswith("2 open rows.\n"), errors) == (True, "")
    assert (only.count("Next: "), only.endswith("1 open row.\n")) == (1, True)


def test_queue_that_no_transition_uses_is_named(ticket: Ticket) -> None:
    """
    A queue nobody declares is told on standard error, with the nearest one.
    """
    out, errors = run("--queues", "the other")

    assert out == "0 open rows.\n"
    assert errors == "No bound transition uses the queue 'the other'. Did you mean 'the others'?\n"


def test_limit_says_how_many_more_there_are(ticket: Ticket) -> None:
    """
    A list that is cut short says so; what is counted stays whole.
    """
    out, _ = run("--limit", "1")
    whole, _ = run("--limit", "0")

    assert out.count("Next: ") == 1
    assert "and 1 more; --limit 0 lists all" in out.splitlines()
    assert out.endswith("2 open rows.\n")
    assert (whole.count("Next: "), "more" in whole) == (2, False)


def test_json_is_a_list_of_objects_with_the_documented_keys(ticket: Ticket) -> None:
    """
    Programs get the same facts as people, on standard output alone.
    """
    out, errors = run("--json")

    first, second = json.loads(out)
    assert (list(first), list(second), errors) == (KEYS, KEYS, "")
    assert (first["id"], first["model"], first["instance_id"]) == (message(ticket).pk, "app.Ticket", str(ticket.pk))
    assert (first["errors_count"], first["attempts_started"], first["code"]) == (1, 1, "retry_pause_until")
    assert (second["queue"], second["next_command"]) == ("the others", "manage.py dl_worker --queues 'the others'")


def test_json_without_rows_is_an_empty_list() -> None:
    """
    Nothing to list is a list of nothing.
    """
    assert json.loads(run("--json")[0]) == []


def test_json_that_is_cut_short_is_told_on_standard_error(ticket: Ticket) -> None:
    """
    A program that reads the list does not stumble over the remark.
    """
    out, errors = run("--json", "--limit", "1")

    assert (len(json.loads(out)), errors) == (1, "Listed the first 1 rows; --limit 0 lists all.\n")


def test_old_transaction_is_told_on_a_line_of_its_own(
    only_postgres: None, ticket: Ticket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    What slows all rows stands once below the first.
    """
    monkeypatch.setattr("django_logic.background.explain.sessions.SNAPSHOT_SECONDS", 0.0)
    with session() as other:
        other.execute("SELECT pg_current_xact_id()")

        out, _ = run()

    assert [line.partition(":")[0] for line in out.splitlines()].count("held_snapshot") == 1


def test_sent_row_is_due_and_its_new_reason_is_told(ticket: Ticket) -> None:
    """
    ``--send`` ends the pause, runs nothing itself, and says what holds the row up now.
    """
    enter_worker("a")
    pk = message(ticket).pk

    out, _ = run("--send", str(pk))

    first, second = out.splitlines()
    assert first == f"Row {pk} is due now."
    assert (second.startswith(f"{pk}  "), "  claimable_now: " in second) == (True, True)
    assert (message(ticket).errors_count, stored(ticket)) == (1, "busy")


def test_cancelled_row_ends_through_its_failure_path(ticket: Ticket) -> None:
    """
    ``--cancel`` ends a row that nobody runs at once; the reason and who asked are recorded.
    """
    pk = message(ticket).pk

    out, _ = run("--cancel", str(pk), "--reason", "not needed")

    assert out == f"Row {pk} has ended: cancelled.\n"
    assert (stored(ticket), message(ticket).outcome) == ("failed", "cancelled")
    assert "not needed" in message(ticket).last_error_message


def test_running_attempt_is_asked_to_stop(only_postgres: None, ticket: Ticket) -> None:
    """
    A row that is held can't be ended from here; the request is kept for its attempt.
    """
    pk = message(ticket).pk
    with session() as other:
        lock(other, pk)

        out, _ = run("--cancel", str(pk))

    assert out.startswith(f"Row {pk} is asked to stop.\n{pk}  ")
    assert Cancellation.objects.get().message_id == pk


def test_failed_row_is_retried_by_a_new_one(ticket: Ticket) -> None:
    """
    ``--retry`` of a row that ended names the row that runs instead.
    """
    run("--cancel", str(message(ticket).pk))

    out, _ = run("--retry", str(message(ticket).pk))

    again = int(out.split()[1])
    assert again > message_ids(ticket)[0]
    assert out.startswith(f"Row {again} has fresh attempts.\n{again}  ")


def message_ids(ticket: Ticket) -> list[int]:
    """
    List the keys of an object's rows.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM {TABLE} WHERE instance_id = %s ORDER BY id", [str(ticket.pk)])
        return [pk for (pk,) in cursor.fetchall()]


@pytest.mark.parametrize("option", ["--send", "--retry", "--cancel"])
def test_unknown_row_is_refused_in_one_line(option: str) -> None:
    """
    A key that no row has is a user's mistake: exit code 1, and words without a traceback.
    """
    words = refused(option, "424242")

    assert "424242" in words
    assert "\n" not in words


@pytest.mark.parametrize("option", ["--send", "--retry", "--cancel"])
@pytest.mark.parametrize("key", ["x", "1.5", "0", "-3", "", "9223372036854775808", "9" * 5000])
def test_key_that_no_row_could_have_is_refused(option: str, key: str) -> None:
    """
    What is no key is refused before any database is asked.
    """
    assert refused(f"{option}={key}").startswith(f"{option} takes a whole number from 1; found ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--limit", "many"], "--limit takes a whole number from 0; found 'many'."),
        (["--limit=-1"], "--limit takes a whole number from 0; found '-1'."),
        (["--queues", " , "], "--queues names no queue. Leave it out for all, or part names by commas."),
        (["--send", "1", "--cancel", "1"], "--send and --cancel can't be had at once. Choose one."),
        (["--database", "defalt"], "No database is called 'defalt'; found 'default', 'other'. Did you mean 'default'?"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_right(arguments: list[str], words: str) -> None:
    """
    Each mistake has one line that says how to do better.
    """
    assert refused(*arguments) == words


def test_database_without_the_table_is_told(only_postgres: None, ticket: Ticket) -> None:
    """
    A database that is not migrated is named with the command that migrates it.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} RENAME TO elsewhere")
    try:
        words = refused()
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE elsewhere RENAME TO {TABLE}")

    assert words.startswith("Background work on 'default' can't be read: ")
    assert words.endswith("Is it migrated? Run manage.py migrate --database=default.")


def test_help_explains_every_reason() -> None:
    """
    A newcomer finds each code, the commands and the exit codes in the help.
    """
    text = Command().create_parser("manage.py", "dl_transitions").format_help()

    for word in ("running", "held_by_session", "spent_all_attempts", "--watch", "exit codes:", "held_snapshot"):
        assert word in text


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """
    Start the command as a process of its own on the test databases, and end it.
    """
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        overlay = {"DATABASES": database_facts("dl-transitions", {})}
        folders = [path for path in (str(ROOT), str(ROOT / "src")) if path in sys.path]
        made = {
            "PYTHONPATH": os.pathsep.join(folders),
            "DL_WORKER_STARTER": str(os.getpid()),
            "DL_WORKER_SETTINGS": json.dumps(overlay),
        }
        command = [sys.executable, "-u", "-m", "tests.worker.manage", "dl_transitions", *arguments]
        with (tmp_path / "out").open("w") as out:
            process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **made}, stdout=out, stderr=subprocess.PIPE, text=True
            )
        started.append(process)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_watch_lists_again_until_interrupted(
    only_postgres: None, program: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """
    ``--watch`` shows what has changed since, and Ctrl-C ends it with status 0 and no word.
    """
    looks = tmp_path / "out"
    watching = program("--watch")
    until(lambda: "0 open rows." in looks.read_text())
    job = Job.objects.create()
    job.process.quick()

    until(lambda: f"worker_app.Job#{job.pk}  process.quick" in looks.read_text())
    watching.send_signal(signal.SIGINT)

    _, errors = watching.communicate(timeout=30)
    assert (watching.returncode, errors) == (0, "")


def test_refusal_is_one_line_on_standard_error_with_status_1(
    only_postgres: None, program: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """
    From a shell a mistake is one line on standard error, nothing on standard output, and exit status 1.
    """
    asked = program("--send", "424242")

    _, errors = asked.communicate(timeout=60)

    assert (asked.returncode, (tmp_path / "out").read_text()) == (1, "")
    assert errors == "CommandError: There is no row 424242. See which there are: manage.py dl_transitions.\n"
