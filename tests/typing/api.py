"""
Use the public names as a typed project does; mypy strict must accept this file as it stands.
"""

from __future__ import annotations

from typing import Any, assert_type

from django.contrib.auth.models import User
from django.db import models
from django.db.models.fields import CharField
from django.utils.translation import gettext_lazy as _

from django_logic import (
    Action,
    Process,
    ProcessManager,
    StateConstraint,
    Transition,
    TransitionConstraint,
    TransitionsMixin,
    refusal_message,
)
from django_logic.background import (
    BackgroundAction,
    BackgroundTransition,
    Backoff,
    PermanentFailure,
    Snooze,
    in_flight,
    retry_pending,
    run_available,
    sync_execution,
)
from django_logic.exceptions import (
    AlreadyInProgress,
    InvalidTransition,
    Refusal,
    RefusalReason,
    TransitionForbidden,
    TransitionNotAllowed,
    TransitionTemporarilyUnavailable,
    UnknownAction,
)
from django_logic.models import AuditEntry, StatusChange
from tests.app.models import Order, Sale


class Status(models.TextChoices):
    """
    States as members of an enumeration.
    """

    DRAFT = "draft", _("Draft")
    APPROVED = "approved", _("Approved")
    CANCELLED = "cancelled", _("Cancelled")


TABLE = {Status.DRAFT: {Status.APPROVED}, Status.APPROVED: {Status.CANCELLED}, Status.CANCELLED: set[Status]()}


@refusal_message(_("Not enough in stock."))
def has_stock(order: Order, **keywords: Any) -> bool:
    """
    A condition keeps its own type under the decorator.
    """
    return order.items.exists()


def is_staff(order: Order, user: User, **keywords: Any) -> bool:
    """
    A permission.
    """
    return user.is_staff


def reserve(order: Order, **keywords: Any) -> None:
    """
    A side effect.
    """


class OrderProcess(Process):
    """
    A process as the README declares it, with every slot in use.
    """

    process_name = "process"
    lock = "nowait"
    duplicates = "refuse"
    record_initial_state = True
    conditions = (has_stock,)
    permissions = [is_staff]
    refusal_messages = {"source_state": _("Too late.")}
    transitions = [
        Transition(
            action_name="approve",
            sources=["draft"],
            target="approved",
            conditions=[has_stock],
            permissions=[is_staff],
            prepare=[reserve],
            side_effects=[reserve],
            callbacks=[reserve],
            failure_callbacks=[reserve],
            failed_state="failed",
            next_transition="notify",
            lock="row",
            event="order.approved",
            label=_("Approve"),
            refusal_messages={"has_stock": "Sold out."},
        ),
        Transition("cancel", sources=[Status.DRAFT, Status.APPROVED], target=Status.CANCELLED),
        Transition("reset", sources="*", target="draft"),
        Action("notify", sources=["approved"], side_effects=[reserve], lock="none"),
    ]


class ShopProcess(Process):
    """
    Processes nest.
    """

    nested_processes = [OrderProcess]


class Document(TransitionsMixin, models.Model):
    """
    A model with a table, and a database that knows it.
    """

    state_field = "state"
    TRANSITIONS = TABLE
    state: CharField[str, str] = models.CharField(max_length=20, choices=Status.choices, default=Status.DRAFT)

    class Meta:
        app_label = "app"
        constraints = [
            StateConstraint(field="state", states=Status, name="document_state"),
            TransitionConstraint(field="state", table=TABLE, name="document_moves", initial=[Status.DRAFT]),
        ]


def bind() -> None:
    """
    Binding takes classes, and a field name for other columns than `state`.
    """
    ProcessManager.bind_model_process(Order, OrderProcess, state_field="status")
    ProcessManager.unbind_model_process(Order, OrderProcess)


def move(order: Order, user: User) -> bool:
    """
    A call answers with a bool, by action and by target; listings are lists.
    """
    process = OrderProcess(order, field_name="status")
    assert_type(process.approve(user=user, reason="checked"), bool)
    assert_type(process.transition_to("cancelled", actor="warehouse"), bool)
    assert_type(process.get_available_actions(user=user), list[str])
    assert_type(process.get_available_transitions(user=user), list[Transition])
    assert_type(process.why_not("approve", user=user), list[Refusal])
    assert_type(process.version, int)
    return process.cancel(expected_version=3)


async def move_later(order: Order, sale: Sale, user: User) -> bool:
    """
    The async twins answer the same.
    """
    process = OrderProcess(order, field_name="status")
    assert_type(await process.atransition("approve", user=user), bool)
    assert_type(await process.atransition_to("cancelled"), bool)
    return await sale.atransition_to("placed", actor=user, reason="checkout")


def move_by_table(sale: Sale) -> bool:
    """
    A model with a table has its own verbs.
    """
    assert_type(sale.can_transition_to("placed"), bool)
    return sale.transition_to("placed", actor="warehouse", reason="checkout")


def explain(order: Order) -> tuple[int, str]:
    """
    A refusal carries its facts, whichever its kind.
    """
    try:
        OrderProcess(order, field_name="status").approve()
    except (AlreadyInProgress, TransitionTemporarilyUnavailable):
        return 503, "busy"
    except (InvalidTransition, TransitionForbidden, UnknownAction) as refused:
        return refused.http_status, str(refused.user_message)
    except TransitionNotAllowed as refused:
        assert_type(refused.reasons, tuple[Refusal, ...])
        if refused.reason == RefusalReason.CONDITION:
            return refused.http_status, ", ".join(str(refusal.message) for refusal in refused.reasons)
        raise
    return 200, ""


def read_back(order: Order) -> list[str]:
    """
    History rows are ordinary model instances.
    """
    change = StatusChange.objects.latest("occurred_at")
    entry = AuditEntry.objects.latest("occurred_at")
    assert_type(change.sequence, int)
    return [change.action, change.actor_label, entry.outcome]


class Parcels(Process):
    """
    Background declarations with every slot of their own.
    """

    transitions = [
        BackgroundTransition(
            "send",
            sources=["packed"],
            target="sent",
            in_progress_state="sending",
            failed_state="lost",
            queue="parcels",
            timeout=30,
            no_retry_on=(ValueError,),
            max_errors=3,
            retry=Backoff(first=10, factor=2, limit=60),
            priority=-1,
        ),
        BackgroundAction("weigh", sources="*", queue="parcels", retry=Backoff()),
    ]


def use_background(order: Order) -> None:
    """
    Run and ask about background work.
    """
    assert_type(run_available(["parcels"], limit=10), int)
    assert_type(retry_pending(), int)
    assert_type(in_flight(order), bool)
    with sync_execution():
        raise PermanentFailure("no such address")


def later(order: models.Model, **kwargs: Any) -> None:
    """
    Put work back from a hook.
    """
    raise Snooze(30, "the courier is closed")
