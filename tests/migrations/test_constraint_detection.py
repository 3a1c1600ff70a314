"""
Test that makemigrations sees every change of a constraint, and nothing where nothing changed.
"""

from __future__ import annotations

import enum
from typing import Any

import pytest
from django.apps.registry import Apps
from django.core.management import call_command
from django.db import IntegrityError, connection, migrations, models, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.writer import MigrationWriter

from django_logic.constraints import StateConstraint, TransitionConstraint, is_installed
from tests.constraints_app.models import Order
from tests.migrations.timeline import APP, Timeline


class Status(models.TextChoices):
    """
    Name the states as a project does.
    """

    DRAFT = "draft"
    PLACED = "placed"
    PAID = "paid"


class Bare(enum.Enum):
    """
    Name the same states without Django.
    """

    DRAFT = "draft"
    PLACED = "placed"
    PAID = "paid"


MOVES: dict[Any, Any] = {Status.DRAFT: {Status.PLACED}, Status.PLACED: {Status.PAID, Status.DRAFT}}


def moves(**options: Any) -> TransitionConstraint:
    """
    Return the constraint most tests start from.
    """
    return TransitionConstraint(**{"field": "status", "table": MOVES, "name": "order_moves", **options})


def declare(*constraints: Any, name: str = "Order", **attributes: Any) -> type[models.Model]:
    """
    Declare a model as the code of a project does.
    """
    options = attributes.pop("options", {})
    meta = type("Meta", (), {"app_label": APP, "apps": Apps(), "constraints": list(constraints), **options})
    body = {
        "id": models.BigAutoField(primary_key=True),
        "status": models.CharField(max_length=20, default="draft"),
        "Meta": meta,
        "__module__": __name__,
        **attributes,
    }
    return type(name, (models.Model,), {key: value for key, value in body.items() if value is not None})


def kinds(operations: list[Any]) -> list[str]:
    """
    Name operations by their classes.
    """
    return [type(operation).__name__ for operation in operations]


def is_refused(line: Timeline, **values: Any) -> bool:
    """
    Tell whether the database refuses an update of every order.
    """
    try:
        with transaction.atomic():
            line.rows().update(**values)
    except IntegrityError:
        return True
    return False


@pytest.mark.django_db
def test_migrated_app_needs_no_migration(capsys: pytest.CaptureFixture[str]) -> None:
    """
    makemigrations --check finds nothing to do for models of every kind.
    """
    call_command("makemigrations", "constraints_app", check=True, dry_run=True)

    assert "No changes" in capsys.readouterr().out


@pytest.mark.parametrize(
    "same",
    [
        {Bare.PLACED: [Bare.DRAFT, Bare.PAID], Bare.DRAFT: {Bare.PLACED}},
        {"placed": ("paid", "draft"), "draft": frozenset({"placed"}), "paid": ()},
        [("draft", ["placed"]), ("placed", iter(["draft", "paid", "paid"]))],
    ],
    ids=["enum", "plain", "pairs"],
)
def test_other_spelling_of_a_table_needs_no_migration(line: Timeline, same: Any) -> None:
    """
    Members of any enum and plain values, in any order, are the same constraint.
    """
    states = StateConstraint(field="status", states=Status, name="order_states")
    line.migrate_to(declare(moves(), states))

    todo = line.todo(
        declare(
            StateConstraint(field="status", states=["paid", Bare.PLACED, Status.DRAFT], name="order_states"),
            moves(table=same),
        )
    )

    assert todo == []


@pytest.mark.parametrize(
    "changed",
    [
        {"table": {**MOVES, Status.PAID: [Status.DRAFT]}},
        {"initial": Status.DRAFT},
        {"table": {**MOVES, "archived": []}},
    ],
    ids=["edge", "initial", "state"],
)
def test_change_of_the_moves_is_migrated_forward_and_back(line: Timeline, changed: dict[str, Any]) -> None:
    """
    A changed table makes one migration, which replaces the triggers, is complete, and reverses.
    """
    line.migrate_to(declare(moves()))

    operations = line.migrate_to(declare(moves(**changed)))
    new = is_installed(connection, line.model(), moves(**changed))
    rest = line.todo(declare(moves(**changed)))
    line.back()

    assert kinds(operations) == ["RemoveConstraint", "AddConstraint"]
    assert (new, rest) == (True, [])
    assert is_installed(connection, line.model(), moves())


def test_change_of_the_message_keeps_the_guard(line: Timeline) -> None:
    """
    A new message or code is migrated, by whatever operation this Django has for it, and the triggers stand.
    """
    told = moves(violation_error_message="No.", violation_error_code="no")
    line.migrate_to(declare(moves()))

    operations = line.migrate_to(declare(told))
    line.again()
    line.rows().create()

    assert len(operations) in (1, 2)
    assert line.todo(declare(told)) == []
    assert is_refused(line, status="paid")


def test_renamed_field_is_migrated_with_its_constraint(line: Timeline) -> None:
    """
    What makemigrations writes for a renamed state field works forward and back.
    """
    renamed = declare(moves(field="stage"), status=None, stage=models.CharField(max_length=20, default="draft"))
    line.migrate_to(declare(moves()))

    operations = line.todo(renamed, ask_rename=True)
    line.forward(*operations)
    line.rows().create()
    forward = is_refused(line, stage="paid")
    line.back()

    assert kinds(operations) == ["RemoveConstraint", "RenameField", "AddConstraint"]
    assert forward
    assert is_refused(line, status="paid")


@pytest.mark.parametrize(("first", "second"), [(None, "stage"), ("stage", None), ("stage", "stage_2")])
def test_renamed_column_is_migrated_with_its_constraint(line: Timeline, first: str | None, second: str | None) -> None:
    """
    A change of db_column takes the triggers along, although the constraint reads the same.
    """

    def declared(column: str | None) -> type[models.Model]:
        return declare(moves(), status=models.CharField(max_length=20, default="draft", db_column=column))

    line.migrate_to(declared(first))
    line.rows().create()

    operations = line.migrate_to(declared(second))
    forward = is_refused(line, status="paid"), is_installed(connection, line.model(), moves())
    rest = line.todo(declared(second))
    line.back()

    assert kinds(operations) == ["RemoveConstraint", "AlterField", "AddConstraint"]
    assert (forward, rest) == ((True, True), [])
    assert is_refused(line, status="paid")
    line.rows().update(status="placed")


def test_renamed_model_is_migrated_with_its_constraint(line: Timeline) -> None:
    """
    A model whose constraint carries its name gets the new name everywhere.
    """
    named = "%(app_label)s_%(class)s_moves"
    line.migrate_to(declare(moves(name=named)))

    operations = line.todo(declare(moves(name=named), name="Refund"), ask_rename_model=True)
    line.forward(*operations)
    line.rows("Refund").create()

    assert kinds(operations)[0] == "RenameModel"
    assert all("refund" in trace for trace in line.traces())
    with pytest.raises(IntegrityError), transaction.atomic():
        line.rows("Refund").update(status="paid")


def test_removed_constraint_and_model_leave_nothing(line: Timeline) -> None:
    """
    What makemigrations writes for a constraint, then a model, that is gone from the code leaves no trigger.
    """
    line.migrate_to(declare(moves()))

    removed = line.migrate_to(declare())
    left = line.traces()
    line.migrate_to(declare(moves()))
    deleted = line.migrate_to()

    assert (kinds(removed), left) == (["RemoveConstraint"], [])
    assert (kinds(deleted)[-1], line.traces()) == ("DeleteModel", [])


def written(*operations: Any) -> str:
    """
    Return the source makemigrations writes.
    """
    migration = type("Migration", (migrations.Migration,), {"operations": list(operations), "dependencies": []})
    return MigrationWriter(migration("0001", APP)).as_string()


def test_migration_file_holds_plain_values_and_reads_back_equal() -> None:
    """
    A migration imports none of the project's enums, and what it holds equals what was declared.
    """
    declared = [
        moves(initial=[Status.PLACED, Status.DRAFT], column="stage"),
        moves(name="none", table={None: [Status.DRAFT], Status.DRAFT: [None]}, initial=[None]),
        moves(name="message", violation_error_message="No %(to)s.", violation_error_code="no"),
        StateConstraint(field="status", states=Status, name="order_states"),
    ]
    source = written(*(migrations.AddConstraint("Order", constraint) for constraint in declared))

    namespace: dict[str, Any] = {}
    exec(compile(source, "migration", "exec"), namespace)  # noqa: S102 (the source was just written by Django)
    read = [operation.constraint for operation in namespace["Migration"].operations]

    assert read == declared
    assert "Status" not in source
    assert "models.CheckConstraint(" in source
    assert "django_logic.constraints.TransitionConstraint(" in source


def test_migration_file_is_the_same_for_any_order() -> None:
    """
    The text of a migration does not depend on the order of sets.
    """
    one = moves(table={"b": {"c", "a"}, "a": {"b", "c"}}, initial={"b", "a"})
    other = moves(table={"a": ["c", "b"], "b": ["a", "c"], "c": []}, initial=["a", "b"])

    texts = {written(migrations.AddConstraint("Order", entry)).split("class ")[1] for entry in (one, other)}

    assert len(texts) == 1


@pytest.mark.django_db(transaction=True)
def test_app_migrates_to_zero_and_back() -> None:
    """
    The executor takes the whole app away, with every trigger and function, and brings it back guarded.
    """
    line = Timeline()
    traces = {
        "postgresql": "SELECT proname FROM pg_proc WHERE proname LIKE 'constraints_%'",
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE 'constraints_app_%'",
        "mysql": "SELECT trigger_name FROM information_schema.triggers"
        " WHERE event_object_schema = DATABASE() AND trigger_name LIKE 'constraints_%'",
    }[connection.vendor]

    before = len(line.run(traces))
    MigrationExecutor(connection).migrate([("constraints_app", None)])
    left = line.run(traces)
    MigrationExecutor(connection).migrate([("constraints_app", "0001_initial")])
    call_command("migrate", "constraints_app", verbosity=0)

    assert before > 0
    assert left == []
    assert len(line.run(traces)) == before
    Order.objects.create()
    with pytest.raises(IntegrityError):
        Order.objects.update(status="paid")
