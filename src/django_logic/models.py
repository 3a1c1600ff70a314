"""
The records a move leaves behind: history for the domain, audit for compliance.

Rows are written by `django_logic.writer` and `django_logic.audit` only and never changed afterwards.
They carry no foreign key: writing one locks nobody else's row, and a record outlives what it speaks of.
"""

from __future__ import annotations

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils.translation import gettext_lazy as _

from django_logic.history import HistoryQuerySet, RecordQuerySet

__all__ = ["AuditEntry", "Record", "StatusChange"]

#: Names the unique constraint that turns a missed race into a clean conflict.
ONE_SEQUENCE = "dl_history_one_sequence"


class Record(models.Model):
    """
    Hold what history and audit have in common: which object, which move, who, why, when.
    """

    app_label = models.CharField(_("app"), max_length=100)
    model_name = models.CharField(_("model"), max_length=100)
    instance_id = models.CharField(_("object"), max_length=255)
    process_name = models.CharField(_("process"), max_length=100)
    field_name = models.CharField(_("field"), max_length=100)
    action = models.CharField(_("action"), max_length=255)
    from_state = models.CharField(_("from"), max_length=255, null=True)  # noqa: DJ001 (null = a column without a value)
    to_state = models.CharField(_("to"), max_length=255, null=True)  # noqa: DJ001 (as above)
    actor_id = models.CharField(_("actor id"), max_length=255, blank=True)
    actor_label = models.CharField(_("actor"), max_length=255, blank=True)
    reason = models.TextField(_("reason"), blank=True)
    occurred_at = models.DateTimeField(_("when"))
    transition_id = models.UUIDField(_("transition"))
    root_id = models.UUIDField(_("root transition"))
    parent_id = models.UUIDField(_("parent transition"), null=True)
    metadata = models.JSONField(_("metadata"), default=dict, blank=True, encoder=DjangoJSONEncoder)

    class Meta:
        abstract = True

    @property
    def actor(self) -> models.Model | None:
        """
        Load the user who asked, None for a system call, a named actor or a deleted user.
        """
        return RecordQuerySet.actor_of(self)


class StatusChange(Record):
    """
    Record one move of one object's state column.

    ``sequence`` counts the moves of one object in one process from 1 without gaps.
    """

    sequence = models.PositiveBigIntegerField(_("sequence"))

    objects = HistoryQuerySet.as_manager()

    class Meta:
        verbose_name = _("status change")
        verbose_name_plural = _("status changes")
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["instance_id", "model_name", "app_label", "process_name", "sequence"],
                name=ONE_SEQUENCE,
            ),
        )
        indexes = (models.Index(fields=["model_name", "to_state", "occurred_at"], name="dl_history_entered"),)

    def __str__(self) -> str:
        return f"{self.model_name} {self.instance_id}: {self.from_state} → {self.to_state}"


class AuditEntry(Record):
    """
    Record who asked for what, and how it ended.
    """

    class Outcome(models.TextChoices):
        """
        Name the ways a call may end.
        """

        MOVED = "moved", _("moved")
        DONE = "done", _("done")
        DUPLICATE = "duplicate", _("duplicate")
        REFUSED = "refused", _("refused")
        FAILED = "failed", _("failed")

    sequence = models.PositiveBigIntegerField(_("sequence"), null=True)
    outcome = models.CharField(_("outcome"), max_length=20, choices=Outcome.choices)
    code = models.CharField(_("code"), max_length=50, blank=True)
    detail = models.TextField(_("detail"), blank=True)

    objects = RecordQuerySet.as_manager()

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit entries")
        ordering = ("id",)
        indexes = (
            models.Index(fields=["instance_id", "model_name", "app_label", "process_name"], name="dl_audit_object"),
            models.Index(fields=["occurred_at"], name="dl_audit_when"),
        )

    def __str__(self) -> str:
        return f"{self.model_name} {self.instance_id}: {self.action} {self.outcome}"
