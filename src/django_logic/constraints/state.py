"""
The set of values a state column may hold, as a constraint Django knows already.

Moves between them are the transition constraint's affair.
"""

from __future__ import annotations

from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.db.models import CheckConstraint, Q

from django_logic.constraints.edges import in_order, named, refuse_mixture, states_of

__all__ = ["StateConstraint"]

#: The keyword that holds the condition; Django renamed it, and the old one is gone from 6.0.
CONDITION = "condition" if django.VERSION >= (5, 1) else "check"


def StateConstraint(*, field: str, states: Any, name: str, **options: Any) -> CheckConstraint:
    """
    Make the database refuse a value outside a set of states.

    `states` is an enum class, its members, or plain values, in any order. A null column passes unless it is declared
    ``null=False``, as with every check constraint. `options` go to Django's constraint: violation_error_message, …

    Shape: a plain ``django.db.models.CheckConstraint``; a migration that holds it never needs this package.
    Raises: ImproperlyConfigured for what is no set of states.
    """
    owner = f"StateConstraint {named(f'StateConstraint on {field!r}', 'name', name)!r}"
    field = named(owner, "field", field)
    given = states_of(owner, states)
    refuse_mixture(owner, given)
    known = [state for state in in_order(given) if state is not None]
    if not known:
        raise ImproperlyConfigured(f"{owner}: states is empty, so no row could be stored. List the states.")
    condition = Q((f"{field}__in", known))
    if None in given:
        condition |= Q((f"{field}__isnull", True))
    return CheckConstraint(**{CONDITION: condition, "name": name, **options})
