"""
Models of every kind a process can be bound to.
"""

from __future__ import annotations

import uuid
from typing import Any

from django import VERSION
from django.db import models

from django_logic import TransitionConstraint, TransitionsMixin


class Product(models.Model):
    """
    Something in stock.
    """

    name = models.CharField(max_length=50)
    stock = models.IntegerField(default=0)


class Order(models.Model):
    """
    An order moved by a process.
    """

    STATUS_CHOICES = [
        ("draft", "Draft"),
        ("approved", "Approved"),
        ("fulfilled", "Fulfilled"),
        ("fulfilment_failed", "Fulfilment failed"),
        ("cancelled", "Cancelled"),
    ]
    status = models.CharField(max_length=32, choices=STATUS_CHOICES, default="draft")
    note = models.CharField(max_length=100, blank=True)
    updated_at = models.DateTimeField(auto_now=True)


class Item(models.Model):
    """
    A line of an order.
    """

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="items")
    product = models.ForeignKey(Product, on_delete=models.CASCADE)
    quantity = models.IntegerField(default=1)


class OrderProxy(Order):
    """
    The same order under another class.
    """

    class Meta:
        proxy = True


class Status(models.TextChoices):
    """
    Name the states of a sale.
    """

    DRAFT = "draft", "Draft"
    PLACED = "placed", "Placed"
    PROCESSING = "processing", "Processing"
    FULFILLED = "fulfilled", "Fulfilled"
    CANCELLED = "cancelled", "Cancelled"


SALE_MOVES = {
    Status.DRAFT: {Status.PLACED, Status.CANCELLED},
    Status.PLACED: {Status.PROCESSING, Status.CANCELLED},
    Status.PROCESSING: {Status.FULFILLED, Status.CANCELLED},
    Status.FULFILLED: set(),
    Status.CANCELLED: set(),
}


class Sale(TransitionsMixin, models.Model):
    """
    An order moved by a table.
    """

    TRANSITIONS = SALE_MOVES
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.DRAFT, db_index=True)
    note = models.CharField(max_length=100, blank=True)
    updated_at = models.DateTimeField(auto_now=True)


class Parcel(models.Model):
    """
    A model with two machines.
    """

    payment_status = models.CharField(max_length=20, default="new")
    parcel_status = models.CharField(max_length=20, default="new")


class UuidDocument(models.Model):
    """
    Keyed by UUID.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    state = models.CharField(max_length=20, default="new")


class SlugDocument(models.Model):
    """
    Keyed by text.
    """

    slug = models.CharField(primary_key=True, max_length=100)
    state = models.CharField(max_length=20, default="new")


class Base(models.Model):
    """
    A concrete parent.
    """

    state = models.CharField(max_length=20, default="new")


class Child(Base):
    """
    A child with a table of its own.
    """

    title = models.CharField(max_length=20, blank=True)


class Stateful(models.Model):
    """
    An abstract parent.
    """

    state = models.CharField(max_length=20, default="new")

    class Meta:
        abstract = True


class FromAbstract(Stateful):
    """
    A model that inherits its column.
    """


class Saved(models.Model):
    """
    A model that listens to its own saves.
    """

    state = models.CharField(max_length=20, default="new")
    saves = models.IntegerField(default=0)
    updated_at = models.DateTimeField(auto_now=True)
    seen: list[Any]

    def save(self, *args: Any, **kwargs: Any) -> None:
        """
        Count saves in memory, and save.
        """
        self.seen = [*getattr(self, "seen", []), kwargs.get("update_fields")]
        super().save(*args, **kwargs)


class Ticket(models.Model):
    """
    A model whose moves tests give hooks to.
    """

    state = models.CharField(max_length=20, default="new")
    note = models.CharField(max_length=100, blank=True)


class Grade(models.IntegerChoices):
    """
    Name integer states, zero among them.
    """

    NONE = 0
    BRONZE = 1
    GOLD = 2


class Level(models.Model):
    """
    A model with integer states.
    """

    state = models.IntegerField(choices=Grade.choices, default=Grade.NONE)


NOT_FORBIDDEN: dict[str, Any] = {
    "condition" if VERSION >= (5, 1) else "check": ~models.Q(state__startswith="forbidden")
}


class Guarded(models.Model):
    """
    A model whose database refuses some of its states.
    """

    state = models.CharField(max_length=20, default="new")
    note = models.CharField(max_length=100, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(**NOT_FORBIDDEN, name="app_guarded_state"),
        ]


class Loose(models.Model):
    """
    A model that may have no state at all.
    """

    state = models.CharField(max_length=20, null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)


class StampedChild(Base):
    """
    A child whose own table keeps the time of the last change.
    """

    updated_at = models.DateTimeField(auto_now=True)


class Silent(models.Model):
    """
    A model whose save() saves nothing once the row exists.
    """

    state = models.CharField(max_length=20, default="new")

    def save(self, *args: Any, **kwargs: Any) -> None:
        """
        Save a new row only.
        """
        if self._state.adding:
            super().save(*args, **kwargs)


class Voyage(TransitionsMixin, models.Model):
    """
    A model whose table has cycles and a state that may follow itself, and whose database knows the table.
    """

    TRANSITIONS = {
        "planned": {"under way", "cancelled"},
        "under way": {"under way", "in port", "lost"},
        "in port": {"under way", "planned"},
        "lost": {"in port"},
        "cancelled": set(),
    }
    status = models.CharField(max_length=12, default="planned")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            TransitionConstraint(
                field="status",
                table={
                    "planned": {"under way", "cancelled"},
                    "under way": {"in port", "lost"},
                    "in port": {"under way", "planned"},
                    "lost": {"in port"},
                    "cancelled": set(),
                },
                initial="planned",
                name="app_voyage_moves",
            ),
        ]


class Legacy(models.Model):
    """
    A table that was there before Django, with names that need quoting.
    """

    number = models.BigAutoField(primary_key=True, db_column="No.")
    state = models.CharField(max_length=20, default="new", db_column="Current State")
    changed = models.DateTimeField(auto_now=True, db_column="select")

    class Meta:
        db_table = "Legacy Table"


class MemberField(models.CharField):
    """
    A column that gives members of an enum instead of their values, as enum packages do.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """
        Make a member of what was read.
        """
        return None if value is None else Status(value)

    def to_python(self, value: Any) -> Any:
        """
        Make a member of anything.
        """
        return None if value is None else Status(value)

    def get_prep_value(self, value: Any) -> Any:
        """
        Write the value.
        """
        return None if value is None else Status(value).value


class Typed(models.Model):
    """
    A model whose state is a member of an enum in Python.
    """

    state = MemberField(max_length=20, default=Status.DRAFT)


class Unlisted(models.Manager["Odd"]):
    """
    Hide every object.
    """

    def get_queryset(self) -> models.QuerySet[Odd]:
        """
        Return nothing.
        """
        return super().get_queryset().none()


class Odd(models.Model):
    """
    A model with names that need quoting, whose default manager hides it.
    """

    key = models.BigAutoField(primary_key=True, db_column="Key No")
    state = models.CharField(max_length=20, default="new", db_column="select")
    updated_at = models.DateTimeField(auto_now=True, db_column="Last-Change")

    objects = Unlisted()

    class Meta:
        db_table = "Odd Table"


class Numbered(Base):
    """
    A child with a key of its own beside the link to its parent.
    """

    base = models.OneToOneField(Base, on_delete=models.CASCADE, parent_link=True)
    number = models.BigAutoField(primary_key=True)
