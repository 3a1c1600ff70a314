"""
Promises of `manage.py dl_report`.
"""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from django_logic import Transition
from django_logic.management.commands.dl_report import Command, readable
from django_logic.models import StatusChange
from tests.app.models import Child, Level, Loose, Parcel, Sale
from tests.flows import Bind, declare
from tests.past import live

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def run(*arguments: str) -> str:
    """
    Run the command and return what it wrote.
    """
    out = io.StringIO()
    call_command("dl_report", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def fail(*arguments: str) -> tuple[str, CommandError]:
    """
    Run the command, which has to fail, and return what it wrote and how it failed.
    """
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("dl_report", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue(), caught.value


@pytest.fixture
def sales() -> list[Sale]:
    """
    Give three sales: one done, two waiting in processing, for nine hours and for one.
    """
    now = timezone.now()
    return [
        live(Sale.objects.create(), ("placed", 0), ("processing", 90), ("fulfilled", 90 + 3 * 3600)),
        live(Sale.objects.create(), ("placed", now - 10 * HOUR), ("processing", now - 9 * HOUR), actor_label="ann"),
        live(Sale.objects.create(), ("placed", now - 2 * HOUR), ("processing", now - HOUR)),
    ]


def test_report_is_a_table_of_every_state(sales: list[Sale]) -> None:
    """
    Each state the code knows has a line, in the order of the field's choices, with readable times.
    """
    told = run("app.Sale")

    assert told.splitlines() == [
        "app.Sale, process on default",
        "",
        "state       stays         mean        p50        p95    longest  open",
        "draft           0            –          –          –          –     0",
        "placed          3  40 min 30 s  1 h 0 min  1 h 0 min  1 h 0 min     0",
        "processing      1    3 h 0 min  3 h 0 min  3 h 0 min  3 h 0 min     2",
        "fulfilled       0            –          –          –          –     1",
        "cancelled       0            –          –          –          –     0",
        "",
    ]


def test_one_state_can_be_asked_for(sales: list[Sale]) -> None:
    """
    --state leaves one line.
    """
    told = run("app.Sale", "--state", "processing")

    assert [line.split()[0] for line in told.splitlines() if line][1:] == ["state", "processing"]


def test_stuck_objects_are_listed_oldest_first(sales: list[Sale]) -> None:
    """
    With --stuck the objects, since when and by whom follow the table, and the status says that there are some.
    """
    told, failure = fail("app.Sale", "--stuck", "0.5")

    lines = told.partition("stuck in ")[2].splitlines()
    assert lines[0] == "processing: 2"
    assert lines[1].startswith(f"  {sales[1].pk}  for 9 h 0 min, since ")
    assert lines[1].endswith("(go by ann)")
    assert lines[2].startswith(f"  {sales[2].pk}  for 1 h 0 min, since ")
    assert (str(failure), failure.returncode) == ("2 objects are stuck for longer than 0.5 h.", 3)


def test_final_states_hold_nobody_stuck_unless_they_are_named(sales: list[Sale]) -> None:
    """
    An object that is done is not stuck; who names the state means it.
    """
    assert "Nothing has been in a state for longer than 1 d 0 h." in run("app.Sale", "--stuck", "24")

    _told, failure = fail("app.Sale", "--stuck", "24", "--state", "fulfilled")

    assert str(failure) == "1 object is stuck for longer than 24 h."


def test_list_of_the_stuck_has_a_limit(sales: list[Sale]) -> None:
    """
    --limit shortens the list, not the count; 0 lists all.
    """
    short, failure = fail("app.Sale", "--stuck", "0", "--limit", "1")
    whole, _failure = fail("app.Sale", "--stuck", "0", "--limit", "0")

    assert "processing: 2" in short
    assert short.rstrip().endswith("and 1 more; --limit 0 lists all")
    assert str(failure).startswith("2 objects")
    assert f"  {sales[2].pk}  for" in whole


def test_json_has_times_in_seconds(sales: list[Sale]) -> None:
    """
    Scripts get one list with an entry for each state; what is unknown is null.
    """
    out, _failure = fail("app.Sale", "--json", "--stuck", "2")

    entries = {entry["state"]: entry for entry in json.loads(out)}
    assert entries["draft"] == {
        "database": "default",
        "model": "app.Sale",
        "process": "process",
        "state": "draft",
        "count": 0,
        "open": 0,
        "mean_seconds": None,
        "p50_seconds": None,
        "p95_seconds": None,
        "max_seconds": None,
        "stuck_count": 0,
        "stuck": [],
    }
    assert (entries["processing"]["count"], entries["processing"]["max_seconds"]) == (1, 10800.0)
    (stuck,) = entries["processing"]["stuck"]
    assert (stuck["object"], stuck["action"], stuck["actor"]) == (str(sales[1].pk), "go", "ann")
    assert entries["processing"]["stuck_count"] == 1


def test_several_processes_have_a_table_each() -> None:
    """
    Without --process all are reported; a state chooses those that know it.
    """
    live(Parcel.objects.create(), ("paid", 0), ("refunded", 5), field="payment_status", process="payment")

    both = run("app.Parcel")
    payment = run("app.Parcel", "--process", "payment")
    by_state = run("app.Parcel", "--state", "paid")

    assert "app.Parcel, parcel on default" in both
    assert "app.Parcel, payment on default" in both
    assert "app.Parcel, parcel" not in payment
    assert "app.Parcel, parcel" not in by_state
    assert "5.0 s" in by_state


def test_child_is_reported_under_the_owner_of_the_column() -> None:
    """
    History belongs to the model with the column.
    """
    live(Child.objects.create(), ("published", 0))

    assert run("app.Child").startswith("app.Base, process on default")


def test_nothing_and_numbers_can_be_read_as_states(bind: Bind) -> None:
    """
    A null state and an empty one have names in the table, and a number is given as text.
    """
    bind(declare(Transition("go", sources=["", None], target="gone")), Loose)

    told = run("app.Loose", "--process", "flow")

    assert {"(null)", "(empty)", "gone"} <= {line.split()[0] for line in told.splitlines() if line}
    assert "\n1  " in run("app.Level", "--state", "1")
    assert Level.objects.count() == 0


@pytest.mark.django_db(databases=["default", "other"])
def test_another_database_can_be_read() -> None:
    """
    --database chooses history and objects.
    """
    live(Sale.objects.using("other").create(), ("placed", 0), using="other")

    (entry,) = json.loads(run("app.Sale", "--state", "placed", "--database", "other", "--json"))

    assert (entry["database"], entry["open"]) == ("other", 1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["app.Sael"], "no model is called 'app.Sael'. Did you mean 'app.Sale'"),
        (["app.Item"], "app.Item has no process, so it has no history."),
        (
            ["app.Sale", "--state", "procesing"],
            "'procesing' is neither declared nor recorded. Did you mean 'proc",
        ),
        (["app.Parcel", "--state", "payd"], "the state 'payd' is neither declared nor recorded."),
        (["app.Sale", "--process", "proces"], "no process 'proces'; found 'process'. Did you mean 'process'?"),
        (["app.Sale", "--stuck=-3"], "--stuck takes a number of hours, 0 or more; found '-3'."),
        (["app.Sale", "--stuck", "-3"], "--stuck takes a number of hours, 0 or more; found '-3'."),
        (["app.Sale", "--stuck", "nan"], "--stuck takes a number of hours, 0 or more; found 'nan'."),
        (["app.Sale", "--stuck", "1e300"], "--stuck takes a number of hours, 0 or more; found '1e300'."),
        (["app.Sale", "--stuck", "two days"], "--stuck takes a number of hours, 0 or more; found 'two days'."),
        (["app.Sale", "--limit", "-1"], "--limit takes 0 or more; found -1."),
        (
            ["app.Sale", "--database", "othr"],
            "called 'othr'; found 'default', 'other'. Did you mean 'other'?",
        ),
    ],
)
def test_mistake_is_told_in_one_line(arguments: list[str], complaint: str) -> None:
    """
    A wrong name or number is an error that names the nearest, never a traceback, and nothing is reported.
    """
    told, failure = fail(*arguments)

    assert complaint in str(failure)
    assert "\n" not in str(failure)
    assert (failure.returncode, told) == (1, "")


@pytest.mark.django_db(transaction=True)
def test_database_without_tables_is_told_in_one_line() -> None:
    """
    What is not migrated yet is named with the command that mends it.
    """
    with connection.schema_editor() as editor:
        editor.delete_model(StatusChange)
    try:
        _out, failure = fail("app.Sale")
    finally:
        with connection.schema_editor() as editor:
            editor.create_model(StatusChange)

    assert str(failure).endswith("Run manage.py migrate --database=default.")
    assert "\n" not in str(failure)


@pytest.mark.django_db(transaction=True)
def test_command_line_has_documented_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """
    0 when reported, 1 for a mistake, 3 when somebody is stuck.
    """
    live(Sale.objects.create(), ("placed", 0))
    codes: list[Any] = []

    Command().run_from_argv(["manage.py", "dl_report", "app.Sale"])
    for arguments in (["app.Sael"], ["app.Sale", "--stuck", "1"]):
        with pytest.raises(SystemExit) as ended:
            Command().run_from_argv(["manage.py", "dl_report", *arguments])
        codes.append(ended.value.code)

    assert codes == [1, 3]
    assert "Traceback" not in capsys.readouterr().err


def test_help_explains_the_columns_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """
    A newcomer reads there what p95 means, how to call it and what its status says.
    """
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "dl_report", "--help"])

    told = capsys.readouterr().out
    assert ended.value.code == 0
    for word in ("p95", "open", "examples:", "exit codes: 0", "(the median)"):
        assert word in told


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (None, "–"),
        (timedelta(0), "0 µs"),
        (timedelta(microseconds=999), "999 µs"),
        (timedelta(milliseconds=1), "1 ms"),
        (timedelta(milliseconds=999.9), "999 ms"),
        (timedelta(seconds=1), "1.0 s"),
        (timedelta(seconds=59.96), "59.9 s"),
        (timedelta(minutes=1), "1 min 0 s"),
        (timedelta(minutes=59, seconds=59.9), "59 min 59 s"),
        (timedelta(hours=23, minutes=59), "23 h 59 min"),
        (timedelta(days=400, hours=5), "400 d 5 h"),
        (timedelta(seconds=-90), "-1 min 30 s"),
    ],
)
def test_times_are_readable(time: timedelta | None, text: str) -> None:
    """
    A time has the two units that matter, cut off, never rounded up into another unit.
    """
    assert readable(time) == text
