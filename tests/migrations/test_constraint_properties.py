"""
Test with random tables that the database, the validation and the table itself agree on every move.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, models, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_logic.constraints import TransitionConstraint, is_installed
from tests.migrations.timeline import create_order, timeline

TEXT = st.text(
    st.one_of(
        st.sampled_from("'\"\\%`$;{},= -_/*\n\tsEX01aA"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    max_size=6,
)
STATES = st.one_of(
    st.lists(TEXT, min_size=2, max_size=5, unique=True),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=5, unique=True),
)


@st.composite
def declarations(draw: Any) -> tuple[list[Any], dict[Any, list[Any]], list[Any] | None]:
    """
    Draw states, a table over them, and initial states or none.
    """
    states = [*draw(STATES), *draw(st.sampled_from([[], [None]]))]
    table = {state: draw(st.lists(st.sampled_from(states), unique=True)) for state in states}
    initial = draw(st.one_of(st.none(), st.lists(st.sampled_from(states), min_size=1, unique=True)))
    return states, table, initial


def is_accepted(call: Any, *arguments: Any, **keywords: Any) -> bool:
    """
    Tell whether a call goes through, and undo it.
    """
    try:
        with transaction.atomic():
            call(*arguments, **keywords)
            transaction.set_rollback(True)
    except (IntegrityError, ValidationError):
        return False
    return True


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(declaration=declarations())
def test_database_validation_and_table_agree(transactional_db: None, declaration: Any) -> None:
    """
    For every pair of states, and one that is unknown, all three say the same, for moves and for births.
    """
    states, table, initial = declaration
    is_number = isinstance(states[0], int)
    field: Any = models.IntegerField(null=True) if is_number else models.CharField(max_length=9, null=True)
    constraint = TransitionConstraint(field="status", table=table, name="moves", initial=initial)
    anything = TransitionConstraint(field="status", table=dict.fromkeys(states, states), name="moves")
    unknown = next(state for state in ([7, 8, 9, 10, 11, 12] if is_number else "pqrstuv") if state not in states)

    with timeline() as line:
        line.forward(create_order(anything, fields={"status": field}))
        row = {state: line.rows().create(status=state).pk for state in states}
        line.forward(*line.replacing(constraint))
        model = line.model()
        assert is_installed(connection, model, constraint)
        for state in states:
            for end in [*states, unknown]:
                legal = state == end or end in table[state]
                one = line.rows().filter(pk=row[state])
                assert is_accepted(one.update, status=end) == legal, (state, end)
                instance = one.get()
                instance.status = end
                assert is_accepted(constraint.validate, model, instance) == legal, (state, end)
        for state in [*states, unknown]:
            born = initial is None or state in initial
            assert is_accepted(line.rows().create, status=state) == born, state
            assert is_accepted(constraint.validate, model, model(status=state)) == born, state
