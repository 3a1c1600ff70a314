"""
Models with every kind of state column a project has.
"""

from __future__ import annotations

from itertools import pairwise

from django.db import models

from django_logic.constraints import StateConstraint, TransitionConstraint


class Status(models.TextChoices):
    """
    Name the states of an order.
    """

    DRAFT = "draft"
    PLACED = "placed"
    PAID = "paid"
    CANCELLED = "cancelled"


class Stage(models.IntegerChoices):
    """
    Number the states of a level; 0 is one.
    """

    NONE = 0
    FIRST = 1
    SECOND = 2


TABLE = {
    Status.DRAFT: {Status.PLACED, Status.CANCELLED},
    Status.PLACED: {Status.PAID, Status.CANCELLED},
}

#: States that break careless quoting, each followed by the next.
ODD_STATES = (
    "",
    "it's",
    'say "x"',
    "100%",
    "%s and %%",
    "back\\slash",
    "\\' OR 1=1; --",
    "`tick`",
    "$dl$",
    "{a,b}",
    "*/ x",
    "new\nline",
    "žluťoučký",
    "日本",
    "🦄",
    "draft",
    "Draft",
    "draft ",
    "5=draft",
)


class Order(models.Model):
    """
    Be born as a draft and move along a table.
    """

    status = models.CharField(max_length=20, choices=Status.choices, default=Status.DRAFT)
    note = models.CharField(max_length=50, blank=True, default="")

    class Meta:
        constraints = [
            StateConstraint(field="status", states=Status, name="constraints_order_states"),
            TransitionConstraint(
                field="status", table=TABLE, name="constraints_order_moves", initial=[Status.DRAFT, Status.PLACED]
            ),
        ]


class OrderProxy(Order):
    """
    Share the table of an order.
    """

    class Meta:
        proxy = True


class Rush(Order):
    """
    Extend an order in a table of its own, with a second state there.
    """

    lane = models.CharField(max_length=10, default="slow")

    class Meta:
        constraints = [
            TransitionConstraint(field="lane", table={"slow": ["fast"], "fast": []}, name="constraints_rush_lane"),
        ]


class Level(models.Model):
    """
    Hold a number as state, by a column called otherwise, in rows known by UUIDs or codes.
    """

    code = models.CharField(primary_key=True, max_length=10)
    stage = models.IntegerField(choices=Stage.choices, default=Stage.NONE, db_column="stage_no")

    class Meta:
        constraints = [
            StateConstraint(field="stage", states=Stage, name="constraints_level_states"),
            TransitionConstraint(
                field="stage",
                table={Stage.NONE: [Stage.FIRST], Stage.FIRST: [Stage.SECOND, Stage.NONE]},
                name="constraints_level_moves",
                initial=Stage.NONE,
            ),
        ]


class Answer(models.Model):
    """
    Have no state until somebody decides.
    """

    verdict = models.CharField(max_length=10, null=True)
    is_sealed = models.BooleanField(default=False)

    class Meta:
        constraints = [
            TransitionConstraint(
                field="verdict",
                table={None: ["yes", "no"], "no": ["yes", None]},
                name="constraints_answer_verdict",
                initial=[None],
            ),
            TransitionConstraint(field="is_sealed", table={False: [True]}, name="constraints_answer_seal"),
        ]


class Odd(models.Model):
    """
    Walk through states that break careless quoting.
    """

    state = models.CharField(max_length=40, default="")

    class Meta:
        constraints = [
            TransitionConstraint(
                field="state",
                table={state: [end] for state, end in pairwise(ODD_STATES)},
                name="constraints_odd_moves",
                initial=ODD_STATES,
            ),
        ]


class Tracked(models.Model):
    """
    Lend every child a constraint under a name of the child's own.
    """

    state = models.CharField(max_length=10, default="new")

    class Meta:
        abstract = True
        constraints = [
            TransitionConstraint(
                field="state",
                table={"new": ["done"]},
                name="%(app_label)s_%(class)s_moves_under_a_name_that_is_far_longer_than_any_database_takes",
            ),
        ]


class Letter(Tracked):
    """
    Be one child.
    """


class Parcel(Tracked):
    """
    Be another child.
    """
