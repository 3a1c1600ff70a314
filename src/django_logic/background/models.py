"""
The rows of background work: what was asked for, how far it is, who works on it, and how it ended.

Outcome columns are written by `django_logic.background.settle` and by the move's own statement only.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import VERSION
from django.conf import settings
from django.db import models
from django.db.models import OuterRef, Q
from django.utils.translation import gettext_lazy as _

from django_logic import conf
from django_logic.subject import Column, column_of, instance_key

__all__ = [
    "NEVER",
    "ONE_UNCOMPLETED",
    "Cancellation",
    "Kind",
    "MessageQuerySet",
    "State",
    "TransitionMessage",
    "Worker",
    "never",
]

#: Names the constraint that lets one transition of an object and process be open.
ONE_UNCOMPLETED = "dl_bg_one_uncompleted_per_process"
#: What names an object and one of its processes.
SUBJECT = ("app_label", "model_name", "instance_id", "process_name")
#: When a row is due that waits for an operator; a real time, since not every driver reads "infinity".
NEVER = datetime(9999, 1, 1, tzinfo=UTC)


def never() -> datetime:
    """
    Return `NEVER` as the project writes times: without a zone where ``USE_TZ`` is off.
    """
    return NEVER if settings.USE_TZ else NEVER.replace(tzinfo=None)


class Kind(models.TextChoices):
    """
    Name what a row asks a worker to do.
    """

    TRANSITION = "transition", _("transition")
    CALLBACK = "callback", _("callback")
    FAILURE_CALLBACK = "failure_callback", _("failure callback")
    NEXT = "next", _("next transition")


class State(models.TextChoices):
    """
    Name how a row ended.
    """

    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    SUPERSEDED = "superseded", _("superseded")
    UNRESTORABLE = "unrestorable", _("unrestorable")
    CANCELLED = "cancelled", _("cancelled")


def check(condition: Q, name: str) -> models.CheckConstraint:
    """
    Make a check constraint; its keyword was renamed in Django 5.1.
    """
    keyword: Any = {"condition" if VERSION >= (5, 1) else "check": condition}
    return models.CheckConstraint(name=name, **keyword)


class MessageQuerySet(models.QuerySet["TransitionMessage"]):
    """
    Find the rows of objects.
    """

    def open(self) -> MessageQuerySet:
        """
        Keep the rows that have not ended.
        """
        return self.filter(is_completed=False)

    def transitions(self) -> MessageQuerySet:
        """
        Keep the rows that stand for transitions, without what follows them.
        """
        return self.filter(kind=Kind.TRANSITION)

    def durable_beside(self, message: TransitionMessage | None = None) -> MessageQuerySet:
        """
        Keep the open rows of what follows transitions of the same object and process as one row's; as the outer
        query's row for None.
        """
        same = {name: OuterRef(name) if message is None else getattr(message, name) for name in SUBJECT}
        return self.open().exclude(kind=Kind.TRANSITION).filter(**same)

    def ahead(self) -> MessageQuerySet:
        """
        Keep the rows that have to end before a durable one, the outer query's, may begin; spent ones hold up nobody.
        """
        return self.durable_beside().filter(id__lt=OuterRef("id"), run_at__lt=never())

    def about(self, column: Column, *keys: str) -> MessageQuerySet:
        """
        Keep the rows of objects in one process.
        """
        return self.filter(
            app_label=column.app_label,
            model_name=column.model_name,
            instance_id__in=keys,
            process_name=column.process_name,
        )

    def for_instance(self, instance: models.Model, process_name: str = "process") -> MessageQuerySet:
        """
        Keep the rows of one object in one process.
        """
        process = getattr(instance, process_name)
        column = column_of(type(instance), process.field_name, process_name)
        return self.about(column, instance_key(column, instance))


class TransitionMessage(models.Model):
    """
    Hold one piece of background work until it has ended, and how it did.

    ``run_at`` is the one clock: a delay, a pause after an error and a lease all say when the row is due again.
    Source: docs/reference/background.md
    """

    # Written by the database's clock like every other time, so not by Django.
    created = models.DateTimeField(_("created"))
    modified = models.DateTimeField(_("modified"))
    kind = models.CharField(_("kind"), max_length=20, choices=Kind.choices, default=Kind.TRANSITION)

    app_label = models.CharField(_("app"), max_length=100)
    model_name = models.CharField(_("model"), max_length=100)
    instance_id = models.CharField(_("object"), max_length=255)
    process_name = models.CharField(_("process"), max_length=100)
    field_name = models.CharField(_("field"), max_length=100, blank=True, default="")
    transition_name = models.CharField(_("transition"), max_length=255)
    hook_name = models.CharField(_("hook"), max_length=255, blank=True, default="")
    model_class = models.CharField(_("model class"), max_length=201, blank=True, default="")
    process_class = models.TextField(_("process class"), blank=True, default="")
    owning_process_class = models.TextField(_("declaring class"), blank=True, default="")

    kwargs = models.JSONField(_("keywords"), default=dict, blank=True)
    user_id = models.CharField(_("user id"), max_length=255, null=True, blank=True)  # noqa: DJ001 (null = no user)
    actor_id = models.CharField(_("actor id"), max_length=255, blank=True, default="")
    actor_label = models.CharField(_("actor"), max_length=255, blank=True, default="")
    reason = models.TextField(_("reason"), blank=True, default="")
    transition_id = models.UUIDField(_("transition id"))
    root_id = models.UUIDField(_("root transition"))
    parent_id = models.UUIDField(_("parent transition"), null=True, blank=True)
    #: How many next transitions led here, one after the other.
    chain = models.PositiveSmallIntegerField(_("chain"), default=0)
    traceparent = models.CharField(_("trace"), max_length=100, blank=True, default="")

    queue_name = models.CharField(_("queue"), max_length=100)
    priority = models.SmallIntegerField(_("priority"), default=0)
    run_at = models.DateTimeField(_("due"))
    timeout_seconds = models.FloatField(_("time limit"), null=True, blank=True)
    max_errors = models.PositiveSmallIntegerField(_("attempts allowed"), null=True, blank=True)

    attempts_started = models.PositiveIntegerField(_("attempts started"), default=0)
    errors_count = models.PositiveIntegerField(_("errors"), default=0)
    last_error_dt = models.DateTimeField(_("last error at"), null=True, blank=True)
    last_error_message = models.TextField(_("last error"), blank=True, default="")
    claim_token = models.UUIDField(_("claim"), null=True, blank=True)
    worker = models.CharField(_("worker"), max_length=255, blank=True, default="")
    backend_pid = models.IntegerField(_("session"), null=True, blank=True)
    code_version = models.CharField(_("code version"), max_length=100, blank=True, default="")
    started_at = models.DateTimeField(_("started"), null=True, blank=True)

    is_completed = models.BooleanField(_("ended"), default=False)
    outcome = models.CharField(_("outcome"), max_length=20, choices=State.choices, blank=True, default="")
    ended_in_failure = models.BooleanField(_("ended in failure"), default=False)
    failure_side_effect_error = models.TextField(_("error while failing"), blank=True, default="")
    completed_at = models.DateTimeField(_("ended at"), null=True, blank=True)
    duration_ms = models.PositiveBigIntegerField(_("duration"), null=True, blank=True)

    objects = MessageQuerySet.as_manager()

    class Meta:
        verbose_name = _("background transition")
        verbose_name_plural = _("background transitions")
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["app_label", "model_name", "instance_id", "process_name"],
                condition=Q(is_completed=False, kind="transition"),
                name=ONE_UNCOMPLETED,
            ),
            check(
                Q(is_completed=False, outcome="", completed_at__isnull=True)
                | Q(is_completed=True, completed_at__isnull=False) & ~Q(outcome=""),
                "dl_bg_ended_with_outcome",
            ),
        )
        indexes = (
            models.Index(
                fields=["queue_name", "priority", "run_at", "id"],
                condition=Q(is_completed=False),
                name="dl_bg_claimable",
            ),
            models.Index(fields=["instance_id", "model_name", "app_label", "process_name"], name="dl_bg_instance"),
        )

    def __str__(self) -> str:
        return f"{self.pk}: {self.label} of {self.subject}"

    @property
    def attempts_allowed(self) -> int:
        """
        Return how many attempts it may spend.
        """
        return self.max_errors or conf.max_errors()

    @property
    def label(self) -> str:
        """
        Return how messages name what is asked for.
        """
        hook = f" {self.get_kind_display()} {self.hook_name}".rstrip() if self.kind != Kind.TRANSITION else ""
        return f"{self.process_name}.{self.transition_name}{hook}"

    @property
    def subject(self) -> str:
        """
        Return how messages name the object.
        """
        return f"{self.app_label}.{self.model_name}#{self.instance_id}"


class Cancellation(models.Model):
    """
    Ask a running attempt to stop: it holds the lock of its own row, so the request is another one.
    """

    message_id = models.BigIntegerField(_("background transition"), unique=True)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    reason = models.TextField(_("reason"), blank=True, default="")
    actor_id = models.CharField(_("actor id"), max_length=255, blank=True, default="")
    actor_label = models.CharField(_("actor"), max_length=255, blank=True, default="")

    class Meta:
        verbose_name = _("cancellation")
        verbose_name_plural = _("cancellations")

    def __str__(self) -> str:
        return f"cancel {self.message_id}"


class Worker(models.Model):
    """
    Say which worker serves which queues and when it was last seen; no row refers to it.
    """

    id = models.UUIDField(primary_key=True)
    name = models.CharField(_("name"), max_length=200)
    host = models.CharField(_("host"), max_length=255)
    pid = models.PositiveIntegerField(_("process"))
    queues = models.JSONField(_("queues"), default=list)
    concurrency = models.PositiveSmallIntegerField(_("concurrency"), default=1)
    code_version = models.CharField(_("code version"), max_length=100, blank=True, default="")
    started_at = models.DateTimeField(_("started"))
    last_seen_at = models.DateTimeField(_("last seen"))
    is_listening = models.BooleanField(_("listening"), null=True)
    claim_ms = models.FloatField(_("last claim took"), null=True)

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
