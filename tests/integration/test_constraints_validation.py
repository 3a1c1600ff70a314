"""
Test that full_clean() says what the database would refuse.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db.models import F
from django.forms import modelform_factory
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from django_logic.constraints import TransitionConstraint
from tests.constraints_app.models import TABLE, Answer, Level, Odd, Order, OrderProxy, Rush, Stage, Status

pytestmark = pytest.mark.django_db


def complaint(instance: Any, **options: Any) -> ValidationError | None:
    """
    Return the first complaint of full_clean() that concerns no single field.
    """
    try:
        instance.full_clean(**options)
    except ValidationError as error:
        return error.error_dict[NON_FIELD_ERRORS][0]
    return None


def test_illegal_move_is_a_validation_error() -> None:
    """
    The error names both states, has a code, and carries the facts.
    """
    order = Order.objects.create()
    order.status = Status.PAID

    found = complaint(order)

    assert found is not None
    assert found.messages == ["Moving from “draft” to “paid” is not allowed."]
    assert found.code == "source_state"
    assert found.params == {"name": "constraints_order_moves", "from": "draft", "to": "paid"}


def test_illegal_birth_is_a_validation_error() -> None:
    """
    A new instance in a state that is not initial is refused, by code and name.
    """
    found = complaint(Order(status=Status.PAID))

    assert found is not None
    assert found.messages == ["Creating it as “paid” is not allowed."]
    assert found.code == "initial_state"


@pytest.mark.parametrize("state", [Status.DRAFT, Status.PLACED, "placed"])
def test_legal_moves_and_births_are_clean(state: str) -> None:
    """
    Staying, moving along the table, and being born in an initial state raise nothing.
    """
    order = Order.objects.create()
    order.status = state

    assert complaint(order) is None
    assert complaint(Order(status=state)) is None


def test_state_is_compared_with_the_stored_row() -> None:
    """
    What counts is the row in the database, not what the instance was loaded with.
    """
    stale = Order.objects.create()
    Order.objects.filter(pk=stale.pk).update(status=Status.PLACED)

    stale.status = Status.PAID
    forward = complaint(stale)
    stale.status = Status.DRAFT
    back = complaint(stale)

    assert forward is None
    assert back is not None


def test_validation_costs_one_query_and_none_for_a_new_instance(django_assert_num_queries: Any) -> None:
    """
    One read by primary key, only of a row that exists.
    """
    constraint, order = Order._meta.constraints[1], Order.objects.create()

    with django_assert_num_queries(1) as captured:
        constraint.validate(Order, order)
    with django_assert_num_queries(0):
        constraint.validate(Order, Order())

    assert isinstance(captured, CaptureQueriesContext)
    assert "id" in captured[0]["sql"].split("WHERE")[1]


def test_excluded_field_is_not_judged(django_assert_num_queries: Any) -> None:
    """
    A form that does not show the state does not fail on it, and nothing is read.
    """
    constraint, order = Order._meta.constraints[1], Order.objects.create()
    order.status = Status.PAID

    assert complaint(order, exclude=["status"]) is None
    with django_assert_num_queries(0):
        constraint.validate(Order, order, exclude={"status"})


def test_deferred_state_is_not_loaded(django_assert_num_queries: Any) -> None:
    """
    An instance without its state in memory can't have changed it.
    """
    pk = Order.objects.create().pk
    order = Order.objects.only("note").get(pk=pk)

    with django_assert_num_queries(0):
        Order._meta.constraints[1].validate(Order, order)


def test_expression_is_left_to_the_database() -> None:
    """
    What the database computes is not judged in advance.
    """
    order = Order.objects.create()
    order.status = F("note")

    Order._meta.constraints[1].validate(Order, order)


def test_unsaved_copy_of_a_row_that_is_gone_is_judged_as_a_birth() -> None:
    """
    Saving an instance whose row was deleted creates one.
    """
    order = Order.objects.create()
    Order.objects.all().delete()
    order.status = Status.PAID

    found = complaint(order)

    assert found is not None
    assert found.code == "initial_state"


def test_proxy_and_child_are_judged_by_the_owner_of_the_column() -> None:
    """
    A proxy and a multi-table child share their parent's moves.
    """
    order, rush = Order.objects.create(), Rush.objects.create()
    proxy = OrderProxy.objects.get(pk=order.pk)
    proxy.status = rush.status = Status.PAID

    assert complaint(proxy) is not None
    assert complaint(rush) is not None


def test_numbers_nulls_flags_and_odd_texts_are_judged() -> None:
    """
    Values are compared as the column holds them.
    """
    level, answer, odd = Level.objects.create(code="a"), Answer.objects.create(), Odd.objects.create(state="draft")
    level.stage = "1"
    answer.verdict, answer.is_sealed = "yes", "true"
    odd.state = "Draft"
    legal = complaint(level), complaint(answer, exclude=["is_sealed"]), complaint(odd)

    level.stage = Stage.SECOND
    answer.verdict = "perhaps"
    odd.state = "draft "
    illegal = [
        entry._meta.constraints[-1] if entry is not answer else entry._meta.constraints[0]
        for entry in (level, answer, odd)
    ]

    assert legal == (None, None, None)
    for instance, constraint in zip((level, answer, odd), illegal, strict=True):
        with pytest.raises(ValidationError):
            constraint.validate(type(instance), instance)


def test_value_the_column_can_not_hold_is_left_to_the_field() -> None:
    """
    Nonsense is the field's complaint, once.
    """
    level = Level.objects.create(code="a")
    level.stage = "nonsense"

    with pytest.raises(ValidationError) as caught:
        level.full_clean()

    assert set(caught.value.error_dict) == {"stage"}


def test_own_message_and_code_are_used() -> None:
    """
    violation_error_message may name the states; violation_error_code replaces ours.
    """
    told = TransitionConstraint(
        field="status",
        table=TABLE,
        name="moves",
        violation_error_message="%(name)s: no way from %(from)s to %(to)s.",
        violation_error_code="no_way",
    )
    order = Order.objects.create()
    order.status = Status.PAID

    with pytest.raises(ValidationError) as caught:
        told.validate(Order, order)

    assert caught.value.messages == ["moves: no way from draft to paid."]
    assert caught.value.code == "no_way"


def test_form_shows_the_refusal() -> None:
    """
    A model form with the state refuses an illegal move and saves a legal one.
    """
    order = Order.objects.create()
    form_class = modelform_factory(Order, fields=["status"])

    refused = form_class({"status": "paid"}, instance=Order.objects.get(pk=order.pk))
    saved = form_class({"status": "placed"}, instance=Order.objects.get(pk=order.pk))

    assert refused.errors == {"__all__": ["Moving from “draft” to “paid” is not allowed."]}
    assert saved.is_valid()
    saved.save()
    order.refresh_from_db()
    assert order.status == "placed"


def test_message_is_translated_when_it_is_shown() -> None:
    """
    The message is lazy, so that the reader's language counts.
    """
    order = Order.objects.create()
    order.status = Status.PAID
    found = complaint(order)

    assert found is not None
    with translation.override("de"):
        assert "draft" in str(found.messages[0])
