"""
Promises of `manage.py dl_graph`.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_logic import ProcessManager, graph
from tests.app.models import Order, Parcel, SlugDocument, UuidDocument

ROOT = Path(__file__).parents[2]


def drawn(*arguments: str, **options: Any) -> str:
    """
    Run the command and return what it writes.
    """
    out = io.StringIO()
    call_command("dl_graph", *arguments, stdout=out, **options)
    return out.getvalue()


def test_command_draws_one_model_as_mermaid() -> None:
    """
    One model with one process is the bare diagram, ready for a file.
    """
    (binding,) = ProcessManager.bindings_of(Order)

    text = drawn("app.order")

    assert text == graph.mermaid(binding)


@pytest.mark.parametrize("form", ["dot", "table", "markdown"])
def test_command_writes_every_format(form: str) -> None:
    """
    The format's text is that of the library.
    """
    (binding,) = ProcessManager.bindings_of(Order)

    text = drawn("app.Order", "--format", form)

    assert text == graph.WRITERS[form](graph.read(binding))


def test_command_without_a_model_draws_every_binding() -> None:
    """
    The whole project is one Markdown page of diagrams, or one JSON list.
    """
    titles = [graph.read(binding).title for binding in ProcessManager.bindings]

    page, listed = drawn(), json.loads(drawn("--json"))

    assert [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")] == titles
    assert page.count("```mermaid\n---\n") == page.count("\n```\n") == len(titles)
    assert [f"{entry['model']}.{entry['field']}" for entry in listed] == [title.split(":")[0] for title in titles]


def test_command_draws_each_process_of_a_model_or_the_one_that_is_named() -> None:
    """
    Two processes are two diagrams; --process leaves one.
    """
    both, one = drawn("app.Parcel", "--format", "dot"), drawn("app.Parcel", "--process", "payment", "--format", "dot")

    assert both.count("digraph") == 2
    assert one.count("digraph") == 1
    assert "PaymentProcess" in one


def test_command_draws_a_proxy_by_its_parents_process() -> None:
    """
    A proxy has the process it inherits.
    """
    text = drawn("app.OrderProxy")

    assert 'title: "app.OrderProxy.status: OrderProcess"' in text


def test_command_marks_a_state() -> None:
    """
    A state is found by its text, numbers included.
    """
    order, level = drawn("app.Order", "--state", "approved"), drawn("app.Level", "--state", "1", "--format", "table")

    assert "class s1 current" in order
    assert "1 (Bronze)  current" in level


@pytest.mark.django_db(databases=["default", "other"])
def test_command_marks_the_state_of_an_object() -> None:
    """
    Keys of every kind find their object, on the alias that is named, and each process its own field.
    """
    order = Order.objects.using("other").create(status="approved")
    document = UuidDocument.objects.create(state="published")
    slug = SlugDocument.objects.create(slug="a-b/c", state="archived")
    parcel = Parcel.objects.create(payment_status="paid", parcel_status="packed")

    texts = [
        drawn("app.Order", "--pk", str(order.pk), "--database", "other", "--format", "table"),
        drawn("app.UuidDocument", "--pk", str(document.pk), "--format", "table"),
        drawn("app.SlugDocument", "--pk", slug.pk, "--format", "table"),
        drawn("app.Parcel", "--pk", str(parcel.pk), "--format", "table"),
    ]

    marked = [[line.split()[0] for line in text.splitlines() if " current" in line] for text in texts]
    assert marked == [["approved"], ["published"], ["archived"], ["packed", "paid"]]


@pytest.mark.django_db
def test_command_marks_a_stored_state_that_is_not_declared() -> None:
    """
    An object in a state the code does not know is drawn with it.
    """
    order = Order.objects.create(status="asdf")

    text = drawn("app.Order", "--pk", str(order.pk), "--format", "table")

    assert "asdf       current, undeclared" in text


def test_command_leaves_actions_out() -> None:
    """
    --exclude may be repeated, and may name an action of any drawn process.
    """
    text = drawn("app.Parcel", "--exclude", "refund", "--exclude", "pack", "--format", "dot")

    assert "refund" not in text
    assert "pack" not in text.replace("parcel", "")
    assert '[label="pay"]' in text


def test_command_writes_a_file(tmp_path: Path) -> None:
    """
    --output takes the text in UTF-8, and the terminal stays silent.
    """
    file = tmp_path / "order.mmd"

    text = drawn("app.Order", "--output", str(file))

    assert text == ""
    assert file.read_text(encoding="utf-8") == drawn("app.Order")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["app.Ordr"], "There is no model 'app.Ordr'; write app.Model. Did you mean 'app.Order'?"),
        (["Order"], "There is no model 'Order'; write app.Model. Did you mean 'app.Order'"),
        (["shop.Order"], "There is no model 'shop.Order'; write app.Model. Did you mean 'app.Order'"),
        (["app.Product"], "app.Product has no process. Bound are: "),
        (["app.Parcel", "--process", "paymnt"], "there is parcel, payment. Did you mean 'payment'?"),
        (["app.Order", "--state", "aproved"], "there is draft, approved, cancelled. Did you mean 'approved'?"),
        (["app.Order", "--exclude", "cancl"], "No action is called 'cancl'. Did you mean 'cancel'?"),
        (["app.Parcel", "--state", "new"], "The model has several processes."),
        (["--state", "new"], "Name it: dl_graph app.Model."),
        (["app.Order", "--pk", "987654"], "There is no app.Order with the primary key 987654."),
        (["app.Order", "--pk", "x"], "'x' is no primary key of app.Order."),
        (["app.UuidDocument", "--pk", "7"], "'7' is no primary key of app.UuidDocument."),
        (["app.Order", "--pk", "1", "--database", "othr"], "Did you mean 'other'?"),
        (["app.Order", "--output", "/nowhere/to/be/found"], "/nowhere/to/be/found can't be written: "),
    ],
)
def test_mistake_is_told_in_one_line(arguments: list[str], told: str) -> None:
    """
    What is not there is named in one line with what is meant, and ends with status 1.
    """
    with pytest.raises(CommandError) as refused:
        drawn(*arguments)

    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.returncode == 1


def test_command_line_shows_no_traceback() -> None:
    """
    From a shell a mistake is a line on stderr and status 1, and nothing on stdout.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}

    ended = subprocess.run(
        [sys.executable, "-m", "django", "dl_graph", "app.Nothing", "--settings", "tests.settings"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
    )

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("CommandError: There is no model 'app.Nothing'")
    assert "Traceback" not in ended.stderr
