"""
An order and a history table with the columns, the constraint and the index of ours.
"""

from __future__ import annotations

from django.db import models

from kits.orders import OrderColumns


class Order(OrderColumns):
    """
    An order with a plain state column.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)


class StatusChange(models.Model):
    """
    One row per move, numbered per object.
    """

    app_label = models.CharField(max_length=100)
    model_name = models.CharField(max_length=100)
    instance_id = models.CharField(max_length=255)
    process_name = models.CharField(max_length=100)
    field_name = models.CharField(max_length=100)
    action = models.CharField(max_length=255)
    from_state = models.CharField(max_length=255)
    to_state = models.CharField(max_length=255)
    actor_id = models.CharField(max_length=255)
    actor_label = models.CharField(max_length=255)
    reason = models.TextField()
    occurred_at = models.DateTimeField()
    transition_id = models.UUIDField()
    root_id = models.UUIDField()
    parent_id = models.UUIDField(null=True)
    metadata = models.JSONField(default=dict)
    sequence = models.PositiveBigIntegerField()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["instance_id", "model_name", "app_label", "process_name", "sequence"],
                name="bench_raw_one_sequence",
            ),
        )
        indexes = (models.Index(fields=["model_name", "to_state", "occurred_at"], name="bench_raw_entered"),)

    def __str__(self) -> str:
        return f"{self.model_name} {self.instance_id}: {self.from_state} → {self.to_state}"
