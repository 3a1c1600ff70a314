"""
Letting time pass for the library: what is stored moves into the past.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import models, transaction
from django.db.models import F

__all__ = ["advance"]

#: The tables whose times the library compares with now.
TIMED = (
    ("django_logic", "StatusChange"),
    ("django_logic", "AuditEntry"),
    ("django_logic_background", "TransitionMessage"),
    ("django_logic_outbox", "OutboxMessage"),
    ("django_logic_outbox", "OutboxDelivery"),
    ("django_logic_outbox", "InboxEntry"),
)
#: A time beyond this stands for never.
LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def advance(*, using: str = "default", **span: float) -> None:
    """
    Let this much time pass: ``advance(minutes=10)``, with the keywords of `datetime.timedelta`.

    Pauses run out, delayed work comes due, safety nets see old rows, objects have been in their state for longer. The
    library's times are the database's, which nobody can turn; so every stored time of its tables moves back instead.
    Times of your own models stay. Transaction: opens one. Raises: ValueError for a negative span.
    """
    passed = timedelta(**span)
    if passed < timedelta():
        raise ValueError(f"advance() lets time pass; found {passed}. Time does not run backwards.")
    with transaction.atomic(using=using):
        for label, name in TIMED:
            if apps.is_installed(label.replace("django_logic_", "django_logic.")):
                move_back(apps.get_model(label, name), passed, using)


def move_back(model: Any, passed: timedelta, using: str) -> None:
    """
    Move all times of a table into the past, but not those that say never.
    """
    latest = LATEST if settings.USE_TZ else LATEST.replace(tzinfo=None)
    for entry in model._meta.concrete_fields:
        if isinstance(entry, models.DateTimeField):
            known = model._base_manager.using(using).filter(**{f"{entry.name}__lt": latest})
            known.update(**{entry.name: F(entry.name) - passed})
