"""
Test that the triggers live through every change of their table, forward and back, and leave nothing behind.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import django
import pytest
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import IntegrityError, NotSupportedError, migrations, models, transaction
from django.db.migrations.state import ProjectState

from django_logic.constraints import StateConstraint, TransitionConstraint, is_installed
from tests.constraints_app.models import ODD_STATES
from tests.migrations.timeline import APP, Timeline, create_order, timeline

MOVES = {"draft": ["placed", "cancelled"], "placed": ["paid"]}
UNUSUAL = "it's 100% \\ ž"


def moves(field: str = "status", name: str = "order_moves", **options: Any) -> TransitionConstraint:
    """
    Return the constraint most tests start from.
    """
    return TransitionConstraint(**{"field": field, "table": MOVES, "name": name, "initial": "draft", **options})


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


def guards(line: Timeline, name: str = "Order", field: str = "status") -> bool:
    """
    Tell whether a new row can be placed and neither born, nor moved, otherwise.
    """
    rows = line.rows(name)
    if not is_refused(line, rows.create, **{field: "paid"}):
        return False
    row = rows.create(**{field: "draft"})
    one = line.rows(name).filter(pk=row.pk)
    refuses = is_refused(line, one.update, **{field: "paid"})
    one.update(**{field: "placed"})
    one.update(**{field: "placed"})
    back = is_refused(line, one.update, **{field: "draft"})
    one.delete()
    return refuses and back


def test_created_model_is_guarded(line: Timeline) -> None:
    """
    CreateModel with the constraint among its options installs the triggers.
    """
    line.forward(create_order(moves()))

    assert guards(line)


def test_added_constraint_guards_and_removed_leaves_nothing(line: Timeline) -> None:
    """
    AddConstraint installs, RemoveConstraint removes every trigger and function, and both reverse.
    """
    line.forward(create_order())
    line.forward(migrations.AddConstraint("Order", moves()))
    guarded = guards(line)
    line.forward(migrations.RemoveConstraint("Order", "order_moves"))
    left, unguarded = line.traces(), not guards(line)

    line.back()
    guarded_again = guards(line)
    line.back()

    assert (guarded, unguarded, left, guarded_again, line.traces()) == (True, True, [], True, [])


def test_deleted_model_leaves_nothing(line: Timeline) -> None:
    """
    DeleteModel takes triggers and functions with the table, and its reversal brings them back.
    """
    line.forward(create_order(moves()))
    line.forward(migrations.DeleteModel("Order"))
    left = line.traces()

    line.back()
    guarded = guards(line)
    line.back()

    assert (left, guarded, line.traces()) == ([], True, [])


def test_constraint_added_and_removed_in_one_migration_leaves_nothing(line: Timeline) -> None:
    """
    A trigger that was still to be created at the migration's end is not created after all.
    """
    line.forward(create_order(moves()), migrations.RemoveConstraint("Order", "order_moves"))

    assert line.traces() == []
    assert not guards(line)


def test_constraint_replaced_in_one_migration_is_the_new_one(line: Timeline) -> None:
    """
    Of a table created and changed in one migration, the last version counts.
    """
    wider = moves(table={"draft": ["placed", "paid"], "placed": ["paid"]})
    line.forward(
        create_order(moves()),
        migrations.RemoveConstraint("Order", "order_moves"),
        migrations.AddConstraint("Order", wider),
    )
    line.rows().create(status="draft")

    line.rows().update(status="paid")

    assert is_installed(line.connection, line.model(), wider)
    assert not is_installed(line.connection, line.model(), moves())


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AlterField("Order", "status", models.CharField(max_length=64, default="draft")),
        migrations.AlterField("Order", "status", models.TextField(default="draft")),
        migrations.AlterField("Order", "status", models.CharField(max_length=20, default="draft", db_index=True)),
        migrations.AlterField("Order", "status", models.CharField(max_length=20, default="draft", null=True)),
        migrations.AlterField("Order", "id", models.AutoField(primary_key=True)),
        migrations.AddField("Order", "note", models.CharField(max_length=9, default="none")),
        migrations.AddField("Order", "note", models.CharField(max_length=9, null=True)),
        migrations.RemoveField("Order", "extra"),
        migrations.RenameField("Order", "extra", "more"),
        migrations.AlterField("Order", "extra", models.CharField(max_length=9, default="x", unique=True)),
        migrations.AddIndex("Order", models.Index(fields=["status"], name="yard_order_status")),
        migrations.AddConstraint("Order", models.UniqueConstraint(fields=["extra"], name="yard_order_extra")),
        migrations.AlterModelTable("Order", "yard_orders_moved"),
        migrations.RenameModel("Order", "Purchase"),
    ],
    ids=lambda operation: f"{type(operation).__name__}-{operation.__dict__.get('name')}",
)
def test_guard_survives_a_change_of_its_table(line: Timeline, operation: Any) -> None:
    """
    The triggers stand after the change, after its reversal, and after the change again.
    """
    name = "Purchase" if isinstance(operation, migrations.RenameModel) else "Order"
    line.forward(create_order(moves(), fields={"extra": models.CharField(max_length=9, default="x")}))

    line.forward(operation)
    after = guards(line, name)
    line.back()
    before = guards(line)
    line.forward(operation)

    assert (after, before, guards(line, name)) == (True, True, True)
    assert is_installed(line.connection, line.model(name), moves())


@pytest.mark.parametrize(
    "operation",
    [migrations.AlterModelTable("Order", "yard_orders_moved"), migrations.RenameModel("Order", "Purchase")],
    ids=["table", "model"],
)
def test_constraint_is_removed_from_a_renamed_table(line: Timeline, operation: Any) -> None:
    """
    Triggers that were named after an earlier name of the table are found, and nothing is left.
    """
    name = "Purchase" if isinstance(operation, migrations.RenameModel) else "Order"
    line.forward(create_order(moves()))
    line.forward(operation)

    line.forward(migrations.RemoveConstraint(name, "order_moves"))
    left = line.traces()
    line.back()

    assert left == []
    assert guards(line, name)


def test_constraint_of_a_replaced_table_can_be_declared_again(line: Timeline) -> None:
    """
    A second table by the old name gets triggers of its own beside the renamed one.
    """
    line.forward(create_order(moves()))
    line.forward(migrations.RenameModel("Order", "Purchase"))

    line.forward(create_order(moves(name="order_moves_again")))

    assert guards(line)
    assert guards(line, "Purchase")


def test_issue_of_a_trigger_on_an_altered_column_is_no_issue(line: Timeline) -> None:
    """
    Altered, renamed, and with a column beside it, the state column is guarded all the way there, back, and there
    again (pgtrigger#48).
    """
    line.forward(create_order(moves()))
    steps: list[list[Any]] = [
        [migrations.AlterField("Order", "status", models.CharField(max_length=64, default="draft"))],
        [
            migrations.RemoveConstraint("Order", "order_moves"),
            migrations.RenameField("Order", "status", "stage"),
            migrations.AddConstraint("Order", moves("stage")),
        ],
        [migrations.AddField("Order", "note2", models.CharField(max_length=5, default="n"))],
    ]
    for step in steps:
        line.forward(*step)
    there = guards(line, field="stage")
    for _step in steps:
        line.back()
    back = guards(line)
    for step in steps:
        line.forward(*step)

    assert (there, back, guards(line, field="stage")) == (True, True, True)


def test_change_of_type_keeps_the_moves(line: Timeline) -> None:
    """
    Numbers that become text, and text that becomes numbers, keep their moves.
    """
    table = {1: [2], 2: [3]}
    number = models.IntegerField(default=1)
    line.forward(create_order(moves(table=table, initial=None), fields={"status": number}))
    line.rows().create(status=1)

    line.forward(migrations.AlterField("Order", "status", models.CharField(max_length=5, default="1")))
    as_text = is_refused(line, line.rows().update, status="3")
    line.rows().update(status="2")
    line.back()
    as_number = is_refused(line, line.rows().update, status=1)
    line.rows().update(status=3)

    assert (as_text, as_number) == (True, True)


def test_column_renamed_without_its_constraint_fails_closed(line: Timeline) -> None:
    """
    Where a migration written by hand renames the column alone, no illegal move gets through, and it shows.
    """
    line.forward(create_order(moves()))
    line.rows().create()
    renamed = models.CharField(max_length=20, default="draft", db_column="stage")
    line.forward(migrations.AlterField("Order", "status", renamed))

    with pytest.raises(Exception, match=r"status|order_moves"), transaction.atomic():
        line.rows().update(status="paid")

    assert list(line.rows().values_list("status", flat=True)) == ["draft"]
    # SQLite alone rewrites triggers when it renames a column.
    assert is_installed(line.connection, line.model(), moves()) == (line.connection.vendor == "sqlite")
    line.back()
    assert guards(line)


def test_null_is_refused_where_the_table_does_not_list_it(line: Timeline) -> None:
    """
    A row can't hide in NULL, be born in it or come out of it, when the table has no None.
    """
    line.forward(create_order(moves(), fields={"status": models.CharField(max_length=9, null=True)}))
    line.rows().create(status="draft")

    hidden = is_refused(line, line.rows().update, status=None)
    born = is_refused(line, line.rows().create, status=None)
    line.forward(migrations.RemoveConstraint("Order", "order_moves"))
    line.rows().update(status=None)
    line.back()
    out = is_refused(line, line.rows().update, status="draft")

    assert (hidden, born, out) == (True, True, True)


def test_same_name_on_two_tables_makes_two_guards(line: Timeline) -> None:
    """
    Triggers and functions are unique per table, so that removing one table's leaves the other's.
    """
    line.forward(create_order(moves()), create_order(moves(), name="Refund"))
    both = guards(line), guards(line, "Refund")

    line.forward(migrations.RemoveConstraint("Order", "order_moves"))

    assert both == (True, True)
    assert (guards(line), guards(line, "Refund")) == (False, True)


def test_two_constraints_on_one_table_guard_each_its_field(line: Timeline) -> None:
    """
    Two state columns are independent.
    """
    second = moves("parcel", "order_parcel", initial=None)
    line.forward(create_order(moves(), second, fields={"parcel": models.CharField(max_length=9, default="draft")}))
    line.rows().create()

    line.rows().update(status="placed")
    refused = is_refused(line, line.rows().update, parcel="paid")
    line.forward(migrations.RemoveConstraint("Order", "order_moves"))

    assert refused
    assert is_installed(line.connection, line.model(), second)
    assert is_refused(line, line.rows().update, parcel="paid")


@pytest.mark.parametrize("length", [54, 63, 64, 120])
def test_long_names_are_shortened_to_what_the_database_takes(line: Timeline, length: int) -> None:
    """
    Constraints whose names agree up to the end are two, whatever their length.
    """
    names = ["n" * (length - 1) + end for end in "ab"]
    fields = {"other": models.CharField(max_length=9, default="draft")}
    line.forward(create_order(moves(name=names[0]), moves("other", names[1], initial=None), fields=fields))
    guarded = guards(line)

    line.forward(migrations.RemoveConstraint("Order", names[0]))
    line.rows().create()

    assert guarded
    assert is_refused(line, line.rows().update, other="paid")
    line.forward(migrations.RemoveConstraint("Order", names[1]))
    assert line.traces() == []


def test_table_with_an_awkward_name_is_guarded(line: Timeline) -> None:
    """
    Capitals, spaces, quotes and other scripts in the names of tables and columns are quoted.
    """
    column = models.CharField(max_length=9, default="draft", db_column="Der Zustand's ž")
    line.forward(create_order(moves(), fields={"status": column}, db_table="yard Ordér's"))

    assert guards(line)
    line.forward(migrations.RemoveConstraint("Order", "order_moves"))
    assert line.traces() == []


def test_default_of_the_database_does_not_disturb_the_triggers(line: Timeline) -> None:
    """
    A column that the database fills in, where Django makes constraints later than usual, is guarded.
    """
    if not hasattr(models.Field(), "db_default"):
        pytest.skip("Django 4.2 has no database defaults")
    field = models.CharField(max_length=9, db_default="draft")
    count = models.CharField(max_length=9, db_default="it's 5%")
    line.forward(create_order(moves(), fields={"status": field, "count": count}))

    assert guards(line)
    line.forward(migrations.AddField("Order", "note", models.CharField(max_length=9, default="n")))
    assert guards(line)


def test_odd_texts_are_a_value_set(line: Timeline) -> None:
    """
    The value set takes every text of the list, and none beside it.
    """
    # Django 4.2 doubles percent signs in its own check constraints.
    texts = [text for text in ODD_STATES if "%" not in text or django.VERSION >= (5,)]
    line.forward(create_order(StateConstraint(field="status", states=texts, name="order_states")))

    for text in texts:
        line.rows().create(status=text)
    refused = [is_refused(line, line.rows().create, status=f"{text}x") for text in texts]

    assert all(refused)


def test_collation_that_ignores_case_does_not_blur_the_states(line: Timeline) -> None:
    """
    On a column that takes 'Draft' for 'draft', the two are still two states.
    """
    collation = {"sqlite": "nocase", "mysql": "utf8mb4_general_ci"}.get(line.connection.vendor)
    if collation is None:
        pytest.skip("PostgreSQL has a test of its own, for builds with ICU")
    column = models.CharField(max_length=20, default="draft", db_collation=collation)
    line.forward(create_order(moves(), fields={"status": column}))
    line.rows().create()

    refused = [is_refused(line, line.rows().update, status=state) for state in ("Draft", "PLACED", "draft ")]
    born = is_refused(line, line.rows().create, status="Draft")

    assert refused == [True, True, True]
    assert born


def test_key_of_another_type_is_fine(line: Timeline) -> None:
    """
    A refusal names a key of any type.
    """
    line.forward(create_order(moves(), fields={"id": models.UUIDField(primary_key=True)}))
    key = "12345678-1234-5678-1234-567812345678"
    line.rows().create(pk=key)

    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        line.rows().update(status="paid")

    if line.connection.vendor != "sqlite":
        assert key.replace("-", "") in str(caught.value).replace("-", "")


def test_foreign_key_is_a_state(line: Timeline) -> None:
    """
    A state that is a row of its own is guarded by its key, in the table as in validation.
    """
    stages = migrations.CreateModel("Stage", [("code", models.CharField(max_length=9, primary_key=True))])
    link = models.ForeignKey(f"{APP}.Stage", models.PROTECT, default="draft")
    constraint = moves()
    line.forward(stages, create_order(constraint, fields={"status": link}))
    for code in ("draft", "placed", "paid"):
        line.rows("Stage").create(code=code)

    order = line.rows().create()
    refused = is_refused(line, line.rows().update, status="paid")
    order.status_id = "paid"

    assert refused
    with pytest.raises(ValidationError, match="from “draft” to “paid”"):
        constraint.validate(line.model(), order)
    line.rows().update(status="placed")


def test_key_of_several_columns_is_named(line: Timeline) -> None:
    """
    A refusal names every part of a composite key.
    """
    if not hasattr(models, "CompositePrimaryKey"):
        pytest.skip("composite keys came with Django 5.2")
    fields = {
        "pk": models.CompositePrimaryKey("shop", "number"),
        "id": models.IntegerField(default=0),
        "shop": models.IntegerField(),
        "number": models.IntegerField(),
    }
    line.forward(create_order(moves(), fields=fields))
    order = line.rows().create(shop=3, number=14)
    order.status = "paid"

    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        line.rows().update(status="paid")

    assert line.connection.vendor == "sqlite" or "yard_order 3,14 may not move" in str(caught.value)
    with pytest.raises(ValidationError):
        moves().validate(line.model(), order)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_two_aliases_have_guards_of_their_own() -> None:
    """
    Each database is guarded by its own triggers, and removing one leaves the other.
    """
    with timeline() as here, timeline("other") as there:
        here.forward(create_order(moves()))
        there.forward(create_order(moves()))
        there.forward(migrations.RemoveConstraint("Order", "order_moves"))

        assert (guards(here), guards(there)) == (True, False)


def test_migration_printed_by_sqlmigrate_runs_as_it_is(line: Timeline) -> None:
    """
    The collected SQL of a migration, executed statement by statement, installs the triggers.
    """
    odd = moves(table={"draft": ["placed", UNUSUAL], "placed": ["paid"]})
    line.forward(create_order())
    operation = migrations.AddConstraint("Order", odd)
    after = line.state.clone()
    operation.state_forwards(APP, after)
    with line.connection.schema_editor(collect_sql=True) as editor:
        operation.database_forwards(APP, editor, line.state, after)
    printed = [sql for sql in editor.collected_sql if not sql.startswith("--")]

    for sql in printed:
        line.run(sql.removesuffix(";") if line.connection.vendor == "sqlite" and "END;" not in sql else sql)

    assert is_installed(line.connection, line.model(), odd)
    assert guards(line)
    line.state = after


def test_state_the_column_can_not_hold_is_refused_when_it_is_migrated(line: Timeline) -> None:
    """
    A table of words on a column of numbers does not reach the database.
    """
    with pytest.raises(ImproperlyConfigured, match="can't store the state 'cancelled'"):
        line.forward(create_order(moves(), fields={"status": models.IntegerField()}))


def test_constraint_on_a_column_of_the_parent_is_refused_when_it_is_migrated(line: Timeline) -> None:
    """
    A multi-table child can't guard its parent's column.
    """
    line.forward(create_order())
    child = migrations.CreateModel("Rush", [], {"constraints": [moves()]}, bases=(f"{APP}.order",))

    with pytest.raises(ImproperlyConfigured, match="Put the constraint on the model that declares the field"):
        line.forward(child)


def test_field_that_is_unknown_is_refused_when_it_is_migrated(line: Timeline) -> None:
    """
    A misspelt field is named.
    """
    with pytest.raises(ImproperlyConfigured, match="has no field 'stauts'"):
        line.forward(create_order(moves("stauts")))


def test_database_without_our_triggers_is_refused() -> None:
    """
    Where nobody could enforce the moves, the migration fails instead of promising what is not there.
    """
    oracle = SimpleNamespace(vendor="oracle", display_name="Oracle")
    state = ProjectState()
    create_order().state_forwards(APP, state)
    model = state.apps.get_model(APP, "Order")

    with pytest.raises(NotSupportedError, match="needs PostgreSQL, SQLite, MySQL or MariaDB; found Oracle"):
        moves().create_sql(model, SimpleNamespace(connection=oracle, deferred_sql=[]))

    assert [problem.id for problem in moves().check(model, oracle)] == ["django_logic.W006"]


@pytest.mark.parametrize("other", [{"table": {"draft": ["paid"]}}, {"initial": ["placed", "draft"]}, {"initial": None}])
def test_trigger_of_another_version_counts_as_not_installed(line: Timeline, other: dict[str, Any]) -> None:
    """
    is_installed() tells an older table, or older initial states, from the present ones.
    """
    line.forward(create_order(moves()))

    assert is_installed(line.connection, line.model(), moves())
    assert not is_installed(line.connection, line.model(), moves(**other))


def test_equal_constraint_in_another_order_counts_as_installed(line: Timeline) -> None:
    """
    is_installed() asks what is refused, not how it was written.
    """
    line.forward(create_order(moves()))
    same = moves(table={"paid": [], "placed": {"paid"}, "draft": ("cancelled", "placed", "draft")})

    assert is_installed(line.connection, line.model(), same)


def test_missing_trigger_counts_as_not_installed(line: Timeline) -> None:
    """
    is_installed() notices each trigger that was dropped by hand.
    """
    line.forward(create_order(moves()))
    triggers = [name for name in line.traces() if "(" not in name]
    quote = line.connection.ops.quote_name
    on = " ON yard_order" if line.connection.vendor == "postgresql" else ""

    found = []
    for trigger in triggers:
        line.run(f"DROP TRIGGER {quote(trigger)}{on}")
        found.append(is_installed(line.connection, line.model(), moves()))
        line.forward(migrations.RemoveConstraint("Order", "order_moves"))
        line.forward(migrations.AddConstraint("Order", moves()))
        found.append(is_installed(line.connection, line.model(), moves()))

    assert found == [False, True, False, True]
