"""
Promises of `manage.py dl_verify`.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from django_logic import ProcessManager
from django_logic.management.commands.dl_verify import Command
from django_logic.models import StatusChange
from tests.app.models import Order, OrderProxy, Parcel, Sale
from tests.past import force, live

pytestmark = pytest.mark.django_db


@pytest.fixture
def wrong() -> Sale:
    """
    Give a sale whose column was written past the library.
    """
    order = live(Sale.objects.create(), ("placed", 0))
    force(order, "cancelled")
    return order


def run(*arguments: str, **streams: Any) -> str:
    """
    Run the command and return what it wrote.
    """
    out = io.StringIO()
    call_command("dl_verify", *arguments, stdout=out, stderr=streams.get("stderr", io.StringIO()))
    return out.getvalue()


def fail(*arguments: str) -> tuple[str, CommandError]:
    """
    Run the command, which has to fail, and return what it wrote and how it failed.
    """
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("dl_verify", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue(), caught.value


def test_every_bound_model_is_verified_by_default() -> None:
    """
    Without a model each binding is covered, and told by name when it agrees.
    """
    Sale.objects.create().transition_to("placed")

    told = run()

    assert told.startswith("Everything agrees: ")
    for binding in ProcessManager.bindings:
        owner = binding.model._meta.get_field(binding.state_field).model._meta.concrete_model
        assert f"{owner._meta.label}, {binding.process_class.process_name}" in told


def test_finding_is_told_with_its_object_and_the_mend(wrong: Sale) -> None:
    """
    A line for each finding on standard output, what can be done once, and the number of findings as the error.
    """
    out, advice = io.StringIO(), io.StringIO()

    with pytest.raises(CommandError) as caught:
        call_command("dl_verify", "app.Sale", stdout=out, stderr=advice)

    assert out.getvalue() == (
        f"column: app.Sale {wrong.pk} (process): the column holds 'cancelled',"
        " but the newest move (number 1) went to 'placed'.\n"
    )
    assert advice.getvalue().strip().startswith("column: Something wrote the column past the library")
    assert (str(caught.value), caught.value.returncode) == ("1 finding.", 1)


def test_named_models_alone_are_verified(wrong: Sale) -> None:
    """
    A label in any case chooses; a proxy stands for the owner, and naming both reads it once.
    """
    assert run("app.order", "app.OrderProxy") == "Everything agrees: app.Order, process.\n"
    assert run("app.Parcel") == "Everything agrees: app.Parcel, parcel, app.Parcel, payment.\n"


def test_json_is_one_list(wrong: Sale) -> None:
    """
    Scripts get a JSON list on standard output, empty when all agrees, and nothing beside it.
    """
    out, failure = fail("app.Sale", "--json")

    (finding,) = json.loads(out)
    assert {key: finding[key] for key in ("database", "code", "model", "process", "object")} == {
        "database": "default",
        "code": "column",
        "model": "app.Sale",
        "process": "process",
        "object": str(wrong.pk),
    }
    assert finding["text"]
    assert finding["mend"]
    assert failure.returncode == 1
    assert json.loads(run("app.Order", "--json")) == []


def test_json_of_several_findings_is_one_list(wrong: Sale) -> None:
    """
    Elements are written as they are found, and still make one document.
    """
    for _ in range(2):
        force(live(Sale.objects.create(), ("placed", 0)), "draft")

    out, failure = fail("app.Sale", "--json")

    assert len(json.loads(out)) == 3
    assert str(failure) == "3 findings."


def test_limit_stops_the_list(wrong: Sale) -> None:
    """
    After N findings the work ends and says so; 0 lists all, and the limit is no verdict on what was not read.
    """
    for _ in range(2):
        force(live(Sale.objects.create(), ("placed", 0)), "draft")

    out, failure = fail("app.Sale", "--limit", "2")
    everything, _failure = fail("app.Sale", "--limit", "0")

    assert len(out.splitlines()) == 2
    assert str(failure) == "2 findings. Stopped there; --limit 0 lists all."
    assert len(everything.splitlines()) == 3


@pytest.mark.django_db(databases=["default", "other"])
def test_named_databases_are_read_and_told(wrong: Sale) -> None:
    """
    Without a name the default database is read; another one is named on each line.
    """
    order = live(Sale.objects.using("other").create(), ("placed", 0), using="other")
    force(order, "processing", using="other")

    default, _failure = fail("app.Sale")
    other, _failure = fail("app.Sale", "--database", "other")
    both, _failure = fail("app.Sale", "--database", "default", "--database", "other", "--json")

    assert "cancelled" in default
    assert "on other" not in default
    assert "(process on other): the column holds 'processing'" in other
    assert [finding["database"] for finding in json.loads(both)] == ["default", "other"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["app.Sael"], "no model is called 'app.Sael'. Did you mean 'app.Sale'"),
        (["Sale"], "no model is called 'Sale'."),
        (["app.Item"], "app.Item has no process, so it has no history."),
        (
            ["--database", "defautl"],
            "called 'defautl'; found 'default', 'other'. Did you mean 'default'?",
        ),
        (["--limit", "-1"], "--limit takes 0 or more; found -1."),
    ],
)
def test_mistake_is_told_in_one_line(arguments: list[str], complaint: str) -> None:
    """
    A wrong name or number is an error that names the nearest, never a traceback.
    """
    _out, failure = fail(*arguments)

    assert complaint in str(failure)
    assert "\n" not in str(failure)
    assert failure.returncode == 1


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

    assert str(failure).startswith("app.Sale, process on default can't be read: ")
    assert str(failure).endswith("Run manage.py migrate --database=default.")
    assert "\n" not in str(failure)


def test_bar_is_shown_on_a_terminal_and_gives_way_to_findings(wrong: Sale) -> None:
    """
    The bar goes to standard error, and its line is cleared before a finding is written.
    """

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()

    with pytest.raises(CommandError):
        call_command("dl_verify", "app.Sale", "--no-color", stdout=screen, stderr=screen)

    assert "app.Sale, process on default [" in screen.getvalue()
    assert "\r\x1b[Kcolumn: app.Sale" in screen.getvalue()


@pytest.mark.django_db(transaction=True)
def test_command_line_has_documented_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """
    0 when everything agrees, 1 when something was found.
    """
    Order.objects.create(status="draft")

    Command().run_from_argv(["manage.py", "dl_verify", "app.Order"])
    force(
        live(Parcel.objects.create(), ("paid", 0), field="payment_status", process="payment"),
        "new",
        field="payment_status",
    )
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "dl_verify", "app.Parcel", "--no-color"])

    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert printed.err.endswith("CommandError: 1 finding.\n")


def test_help_explains_what_is_compared_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """
    A newcomer reads there what each code means, how to call it and what its status says.
    """
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "dl_verify", "--help"])

    told = capsys.readouterr().out
    assert ended.value.code == 0
    for word in (
        "column ",
        "chain ",
        "sequence ",
        "unknown_state ",
        "constraint_missing ",
        "exit codes: 0",
        "examples:",
    ):
        assert word in told


def test_proxy_stands_for_its_owner(wrong: Sale) -> None:
    """
    History belongs to the model with the column, and the findings name that one.
    """
    order = OrderProxy.objects.create(status="draft")
    live(order, ("approved", 0))
    force(order, "draft")

    out, _failure = fail("app.OrderProxy")

    assert out.startswith(f"column: app.Order {order.pk} (process)")
