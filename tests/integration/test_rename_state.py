"""
Test that RenameState renames everywhere, forward and back, and leaves makemigrations nothing to do.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import django
import pytest
from django.apps.registry import Apps
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, connection, migrations, models, transaction
from django.db.migrations.writer import MigrationWriter
from django.utils import timezone

from django_logic.constraints import StateConstraint, TransitionConstraint, is_installed
from django_logic.models import AuditEntry, StatusChange
from django_logic.operations import RenameState
from tests.migrations.timeline import APP, Timeline, create_order, timeline

CONDITION = "condition" if django.VERSION >= (5, 1) else "check"
RENAME = RenameState("Order", "status", "processing", "in_progress")


@pytest.fixture
def line(transactional_db: None) -> Iterator[Timeline]:
    """
    Give a timeline on the default database.
    """
    with timeline() as line:
        yield line


def status(name: str = "processing") -> type[models.TextChoices]:
    """
    Declare the states of an order, one of them by a name that changes.
    """
    members = {"DRAFT": "draft", name.upper(): name, "FULFILLED": "fulfilled", "CANCELLED": "cancelled"}
    return models.TextChoices("Status", members)  # type: ignore[return-value]


def constraints(name: str = "processing") -> list[Any]:
    """
    Declare everything that mentions a state.
    """
    states: Any = status(name)
    busy = models.Q(status=name) | models.Q(note="", status__in=["draft", name])
    return [
        StateConstraint(field="status", states=states, name="order_states"),
        TransitionConstraint(
            field="status",
            table={"draft": [name, "cancelled"], name: ["fulfilled", "cancelled"]},
            name="order_moves",
            initial=["draft", name],
        ),
        models.CheckConstraint(**{CONDITION: ~models.Q(status=name, note="x"), "name": "order_note"}),
        models.UniqueConstraint(fields=["note"], condition=busy & ~models.Q(note=""), name="order_one_busy"),
    ]


def declare(name: str = "processing", label: str | None = None) -> type[models.Model]:
    """
    Declare the model as the code of a project does, before or after the change.
    """
    choices = [(value, label if label and value == name else text) for value, text in status(name).choices]
    meta = type(
        "Meta",
        (),
        {
            "app_label": APP,
            "apps": Apps(),
            "constraints": constraints(name),
            "indexes": [models.Index(fields=["note"], condition=models.Q(status=name), name="order_busy")],
        },
    )
    body = {
        "id": models.BigAutoField(primary_key=True),
        "status": models.CharField(max_length=20, choices=choices, default=name),
        "note": models.CharField(max_length=9, default=""),
        "Meta": meta,
        "__module__": __name__,
    }
    return type("Order", (models.Model,), body)


def is_refused(line: Timeline, call: Any, *arguments: Any, **keywords: Any) -> bool:
    """
    Tell whether the database refuses.
    """
    try:
        with transaction.atomic(using=line.alias):
            call(*arguments, **keywords)
    except IntegrityError:
        return True
    return False


def record(**values: Any) -> None:
    """
    Write one row of history and one of audit as the writer would.
    """
    about = {"app_label": APP, "model_name": "order", "instance_id": "1", "process_name": "process"}
    facts = {"field_name": "status", "action": "act", "occurred_at": timezone.now(), **about, **values}
    ids = {"transition_id": uuid.uuid4(), "root_id": uuid.uuid4()}
    sequence = StatusChange.objects.count() + 1
    StatusChange.objects.bulk_create([StatusChange(**facts, **ids, sequence=sequence)])
    AuditEntry.objects.bulk_create([AuditEntry(**facts, **ids)])


def recorded(model: Any = StatusChange) -> list[tuple[str | None, str | None]]:
    """
    Read the moves of history or audit.
    """
    return list(model.objects.order_by("id").values_list("from_state", "to_state"))


def stored(line: Timeline) -> list[str]:
    """
    Read the states of all orders.
    """
    return list(line.rows().order_by("id").values_list("status", flat=True))


def test_rows_history_and_audit_are_renamed_and_back(line: Timeline) -> None:
    """
    The rows, and who moved them when, speak of the new name, and of the old one after the reversal.
    """
    line.migrate_to(declare())
    for state in ("draft", "processing"):
        line.rows().create(status=state, note=state[0])
    record(from_state="draft", to_state="processing")
    record(from_state="processing", to_state="fulfilled")

    line.forward(RENAME)
    after = stored(line), recorded(), recorded(AuditEntry)
    line.back()

    moves = [("draft", "in_progress"), ("in_progress", "fulfilled")]
    assert after == (["draft", "in_progress"], moves, moves)
    assert stored(line) == ["draft", "processing"]
    assert recorded() == recorded(AuditEntry) == [("draft", "processing"), ("processing", "fulfilled")]


def test_history_of_others_is_left_alone(line: Timeline) -> None:
    """
    Another app, model or field that has a state by the same name keeps it; so does a name in another case.
    """
    line.migrate_to(declare())
    others = {"app_label": "shop"}, {"model_name": "refund"}, {"field_name": "parcel"}
    for other in others:
        record(from_state="processing", to_state="processing", **other)
    record(from_state="Processing", to_state="processing ")

    line.forward(RENAME)

    assert recorded() == [("processing", "processing")] * 3 + [("Processing", "processing ")]


def test_states_that_only_look_alike_are_left_alone(line: Timeline) -> None:
    """
    A collation that ignores case and trailing spaces renames no neighbour.
    """
    table = {"a": ["A", "a "], "A": [], "a ": []}
    line.forward(create_order(TransitionConstraint(field="status", table=table, name="order_moves")))
    for state in ("a", "A", "a "):
        line.rows().create(status=state)

    line.forward(RenameState("Order", "status", "a", "b"))

    assert stored(line) == ["b", "A", "a "]


def test_guard_is_the_new_one_forward_and_the_old_one_back(line: Timeline) -> None:
    """
    After the rename the database knows the new name alone, and after the reversal the old one.
    """
    line.migrate_to(declare())
    line.rows().create(status="processing")

    line.forward(RENAME)
    there = is_installed(connection, line.model(), constraints("in_progress")[1])
    illegal = is_refused(line, line.rows().update, status="draft")
    unknown = is_refused(line, line.rows().create, status="processing", note="y")
    conditions = is_refused(line, line.rows().update, note="x")
    line.rows().update(status="fulfilled")
    line.back()
    back = is_installed(connection, line.model(), constraints()[1])

    assert (there, illegal, unknown, conditions, back) == (True, True, True, True, True)
    assert is_refused(line, line.rows().create, status="in_progress", note="y")


@pytest.mark.parametrize("new", ["in_progress", "active", "zeroed"])
def test_makemigrations_finds_nothing_more_to_do(line: Timeline, new: str) -> None:
    """
    Choices, default, states, moves, conditions of constraints and indexes: the operation alone covers the change,
    wherever the new name stands among the others.
    """
    line.migrate_to(declare())

    line.forward(RenameState("Order", "status", "processing", new))
    first = line.todo(declare(new))
    line.again()
    second = line.todo(declare(new))
    line.back()

    assert (first, second, line.todo(declare())) == ([], [], [])


def test_own_label_of_a_choice_is_given_to_the_operation(line: Timeline) -> None:
    """
    A label that Django did not derive from the name stays, or becomes the one given.
    """
    line.migrate_to(declare(label="Being worked on"))

    line.forward(RENAME)
    kept = line.todo(declare("in_progress", label="Being worked on"))
    line.back()
    line.forward(RenameState("Order", "status", "processing", "in_progress", label="In the works"))

    assert kept == []
    assert line.todo(declare("in_progress", label="In the works")) == []


def test_grouped_choices_and_defaults_of_the_database_are_renamed(line: Timeline) -> None:
    """
    A choice inside a group is found, and what the database fills in is changed there.
    """
    choices: Any = [("Open", [("draft", "Draft"), ("processing", "Busy")]), ("cancelled", "Gone")]
    options: dict[str, Any] = {"max_length": 20, "choices": choices}
    if hasattr(models.Field(), "db_default"):
        options["db_default"] = "processing"
    line.forward(create_order(*constraints()[:2], fields={"status": models.CharField(**options)}))

    line.forward(RENAME)
    field = line.state.models[APP, "order"].fields["status"]
    if "db_default" in options:
        line.run("INSERT INTO yard_order (id) VALUES (7)")
        assert stored(line) == ["in_progress"]
        line.back()
        line.run("INSERT INTO yard_order (id) VALUES (8)")
        assert stored(line) == ["processing", "processing"]

    assert next(iter(field.choices)) == ("Open", [("draft", "Draft"), ("in_progress", "Busy")])


def test_model_without_constraints_is_renamed_too(line: Timeline) -> None:
    """
    Rows and history need no constraint to be renamed.
    """
    line.forward(create_order())
    line.rows().create(status="processing")
    record(from_state=None, to_state="processing")

    line.forward(RENAME)

    assert (stored(line), recorded()) == (["in_progress"], [(None, "in_progress")])


def test_numbers_are_renamed(line: Timeline) -> None:
    """
    A state that is a number gets another number, in the history as text.
    """
    moves = TransitionConstraint(field="status", table={0: [1], 1: [2]}, name="order_moves", initial=0)
    line.forward(create_order(moves, fields={"status": models.IntegerField(default=0)}))
    line.rows().create()
    record(from_state=None, to_state="0")

    line.forward(RenameState("Order", "status", 0, 10))

    assert (stored(line), recorded()) == ([10], [(None, "10")])
    assert is_refused(line, line.rows().update, status=2)


def test_missing_state_gets_a_name_and_loses_it_again(line: Timeline) -> None:
    """
    NULL is renamed like a state, in rows, history, value set and conditions, and expressions are left alone.
    """
    column = models.CharField(max_length=20, null=True)
    is_open = models.Q(models.lookups.GreaterThanOrEqual(models.F("number"), 0), status__isnull=True)
    line.forward(
        create_order(
            StateConstraint(field="status", states=[None, "done"], name="order_states"),
            TransitionConstraint(field="status", table={None: ["done"]}, name="order_moves", initial=[None]),
            models.CheckConstraint(**{CONDITION: is_open | models.Q(status="done"), "name": "order_open"}),
            fields={"status": column, "number": models.IntegerField(default=0)},
        )
    )
    line.rows().create(status=None)
    record(from_state=None, to_state="done")

    line.forward(RenameState("Order", "status", None, "open"))
    there = stored(line), recorded(), is_refused(line, line.rows().create, status=None)
    line.back()

    assert there == (["open"], [("open", "done")], True)
    assert (stored(line), recorded()) == ([None], [(None, "done")])
    assert is_refused(line, line.rows().create, status="open")


@pytest.mark.parametrize("new", ["it's", "100% \\ done", "ž🦄", "%s"])
def test_odd_names_are_renamed_and_back(line: Timeline, new: str) -> None:
    """
    Quotes, percent signs, backslashes and other scripts arrive as they are.
    """
    line.forward(create_order(constraints()[1]))
    line.rows().create(status="processing")
    record(from_state="processing", to_state="processing")

    line.forward(RenameState("Order", "status", "processing", new))
    after = stored(line), recorded()
    line.back()

    assert after == ([new], [(new, new)])
    assert stored(line) == ["processing"]


def test_column_of_another_name_is_renamed(line: Timeline) -> None:
    """
    What counts is the column, whatever it is called.
    """
    field = models.CharField(max_length=20, default="draft", db_column="Der Zustand")
    line.forward(create_order(constraints()[1], fields={"status": field}))
    line.rows().create(status="processing")

    line.forward(RENAME)

    assert stored(line) == ["in_progress"]


def test_created_and_renamed_in_one_migration(line: Timeline) -> None:
    """
    Triggers that were still to be created when the state was renamed are the new ones.
    """
    line.forward(
        create_order(*constraints()[:2]),
        migrations.RunPython(create_busy_order, migrations.RunPython.noop),
        RENAME,
    )

    assert stored(line) == ["in_progress"]
    assert is_installed(connection, line.model(), constraints("in_progress")[1])
    assert is_refused(line, line.rows().update, status="draft")


def create_busy_order(apps: Any, editor: Any) -> None:
    """
    Insert a row as a data migration does.
    """
    apps.get_model(APP, "Order")._default_manager.using(editor.connection.alias).create(status="processing")


def test_rows_with_checks_pending_are_renamed(line: Timeline) -> None:
    """
    A foreign key that was written in the same migration does not stand in the way.
    """
    link = models.ForeignKey(f"{APP}.Order", models.CASCADE, null=True)
    line.forward(create_order(*constraints()[:2], fields={"parent": link}))

    line.forward(migrations.RunPython(create_family, migrations.RunPython.noop), RENAME)

    assert stored(line) == ["in_progress", "in_progress"]


def create_family(apps: Any, editor: Any) -> None:
    """
    Insert a row that refers to another.
    """
    rows = apps.get_model(APP, "Order")._default_manager.using(editor.connection.alias)
    rows.create(status="processing", parent=rows.create(status="processing"))


def test_between_removal_and_addition_of_the_constraint_only_rows_are_renamed(line: Timeline) -> None:
    """
    Put by hand between what makemigrations wrote for the new name, it does its part and no harm.
    """
    line.forward(create_order(*constraints()[:2]))
    line.rows().create(status="processing")

    line.forward(
        migrations.RemoveConstraint("Order", "order_states"),
        migrations.RemoveConstraint("Order", "order_moves"),
        RENAME,
        migrations.AddConstraint("Order", constraints("in_progress")[0]),
        migrations.AddConstraint("Order", constraints("in_progress")[1]),
    )
    there = stored(line), is_installed(connection, line.model(), constraints("in_progress")[1])
    line.back()

    assert there == (["in_progress"], True)
    assert stored(line) == ["processing"]
    assert is_installed(connection, line.model(), constraints()[1])


def test_after_the_moves_were_replaced_the_guard_is_passed(line: Timeline) -> None:
    """
    Put by hand after the new table, it still gets past the trigger, which stands afterwards.
    """
    line.forward(create_order(constraints()[1]))
    line.rows().create(status="processing")

    line.forward(
        migrations.RemoveConstraint("Order", "order_moves"),
        migrations.AddConstraint("Order", constraints("in_progress")[1]),
        RENAME,
    )

    assert stored(line) == ["in_progress"]
    assert is_installed(connection, line.model(), constraints("in_progress")[1])


def test_migration_without_a_transaction_is_complete(line: Timeline) -> None:
    """
    A migration with atomic = False renames as a whole all the same.
    """
    line.migrate_to(declare())
    line.rows().create(status="processing")

    line.forward(RENAME, atomic=False)

    assert stored(line) == ["in_progress"]
    assert is_installed(connection, line.model(), constraints("in_progress")[1])


def test_failure_in_the_middle_changes_nothing(line: Timeline) -> None:
    """
    Where the database can undo a change of the schema, a rename that fails leaves the old name and its guard.
    """
    if not connection.features.can_rollback_ddl:
        pytest.skip("MySQL commits each step")
    line.migrate_to(declare())
    line.rows().create(status="processing", note="a")
    taken = models.CheckConstraint(**{CONDITION: ~models.Q(status="in_progress"), "name": "order_not_that"})
    line.forward(migrations.AddConstraint("Order", taken))

    with pytest.raises(IntegrityError):
        line.forward(RENAME, atomic=False)

    assert stored(line) == ["processing"]
    assert is_installed(connection, line.model(), constraints()[1])


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        (RenameState("Order", "status", "procesing", "x"), "knows no state 'procesing'.*Did you mean 'processing'"),
        (RenameState("Order", "status", "processing", "draft"), "two states can't become one"),
        (RenameState("Order", "status", "processing", "x" * 21), "the column has room for 20 characters"),
        (RenameState("Order", "stauts", "processing", "x"), "no such model with a field of its own"),
        (RenameState("Odrer", "status", "processing", "x"), "no such model"),
    ],
    ids=["typo", "merge", "length", "field", "model"],
)
def test_senseless_rename_is_refused_before_anything_changes(line: Timeline, operation: Any, told: str) -> None:
    """
    An unknown state, one that exists already, and one the column can't hold are named; nothing is written.
    """
    line.migrate_to(declare())
    line.rows().create(status="processing")

    with pytest.raises(ImproperlyConfigured, match=told):
        line.forward(operation)

    assert stored(line) == ["processing"]


def test_router_decides_where_it_runs(line: Timeline, settings: Any) -> None:
    """
    On a database that does not hold the model, nothing is done.
    """
    line.migrate_to(declare())
    line.rows().create(status="processing")
    settings.DATABASE_ROUTERS = [SimpleNamespace(allow_migrate=lambda db, app_label, **hints: app_label != APP)]

    line.forward(RENAME)
    settings.DATABASE_ROUTERS = []

    assert stored(line) == ["processing"]


def test_database_without_history_is_renamed(line: Timeline, settings: Any) -> None:
    """
    Where the history's tables are not there, the rows are renamed alone.
    """
    line.migrate_to(declare())
    line.rows().create(status="processing")
    record(from_state=None, to_state="processing")
    settings.DATABASE_ROUTERS = [
        SimpleNamespace(allow_migrate=lambda db, app_label, **hints: app_label != "django_logic")
    ]

    line.forward(RENAME)
    settings.DATABASE_ROUTERS = []

    assert (stored(line), recorded()) == (["in_progress"], [(None, "processing")])


def test_tables_of_history_that_are_not_migrated_yet_are_passed_over(line: Timeline) -> None:
    """
    A project that installs the history later can rename before.
    """
    line.migrate_to(declare())
    line.rows().create(status="processing")
    with connection.schema_editor() as editor:
        editor.alter_db_table(StatusChange, "django_logic_statuschange", "yard_hidden")
    try:
        line.forward(RENAME)
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(StatusChange, "yard_hidden", "django_logic_statuschange")

    assert stored(line) == ["in_progress"]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_each_alias_is_renamed_by_its_own_migration() -> None:
    """
    Another database with the same model is not touched.
    """
    with timeline() as here, timeline("other") as there:
        for line in (here, there):
            line.migrate_to(declare())
            line.rows().create(status="processing")

        there.forward(RENAME)

        assert (stored(here), stored(there)) == (["processing"], ["in_progress"])
        assert is_installed(there.connection, there.model(), constraints("in_progress")[1])


def test_sql_can_be_printed(line: Timeline) -> None:
    """
    sqlmigrate shows the updates of rows and history, and the triggers.
    """
    line.migrate_to(declare())
    after = line.state.clone()
    RENAME.state_forwards(APP, after)

    with connection.schema_editor(collect_sql=True) as editor:
        RENAME.database_forwards(APP, editor, line.state, after)
    printed = "\n".join(editor.collected_sql)

    assert "SET" in printed
    assert "'in_progress'" in printed
    assert "django_logic_statuschange" in printed
    assert "CREATE TRIGGER" in printed
    assert is_installed(connection, line.model(), constraints()[1])


def test_operation_reads_back_equal_from_a_migration_file() -> None:
    """
    The operation is written with plain values, described, and named.
    """
    choices: Any = status()
    operation = RenameState("order", "status", choices.PROCESSING, "in_progress", label="Busy", elidable=True)
    migration = type("Migration", (migrations.Migration,), {"operations": [operation], "dependencies": []})
    source = MigrationWriter(migration("0001", APP)).as_string()
    namespace: dict[str, Any] = {}

    exec(compile(source, "migration", "exec"), namespace)  # noqa: S102 (the source was just written by Django)
    (read,) = namespace["Migration"].operations

    assert read.deconstruct() == operation.deconstruct()
    assert read.describe() == "Rename state 'processing' of order.status to 'in_progress'"
    assert read.migration_name_fragment == "rename_state_order_status"
    assert (read.reversible, read.elidable) == (True, True)
    assert read.references_model("Order", APP)
