# Written by makemigrations; the keyword of CheckConstraint alone is by hand, since Django 5.1 renamed it.
from __future__ import annotations

import django
import django.db.models.deletion
from django.db import migrations, models

import django_logic.constraints

CONDITION = "condition" if django.VERSION >= (5, 1) else "check"


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("draft", "Draft"),
                            ("placed", "Placed"),
                            ("paid", "Paid"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="draft",
                        max_length=20,
                    ),
                ),
                ("note", models.CharField(blank=True, default="", max_length=50)),
            ],
        ),
        migrations.CreateModel(
            name="Parcel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.CharField(default="new", max_length=10)),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Answer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("verdict", models.CharField(max_length=10, null=True)),
                ("is_sealed", models.BooleanField(default=False)),
            ],
            options={
                "constraints": [
                    django_logic.constraints.TransitionConstraint(
                        field="verdict",
                        initial=[None],
                        name="constraints_answer_verdict",
                        table=[[None, ["no", "yes"]], ["no", [None, "yes"]], ["yes", []]],
                    ),
                    django_logic.constraints.TransitionConstraint(
                        field="is_sealed", name="constraints_answer_seal", table={False: [True], True: []}
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Letter",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.CharField(default="new", max_length=10)),
            ],
            options={
                "abstract": False,
                "constraints": [
                    django_logic.constraints.TransitionConstraint(
                        field="state",
                        name="constraints_app_letter_moves_under_a_name_that_is_far_longer_than_any_database_takes",
                        table={"done": [], "new": ["done"]},
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Level",
            fields=[
                ("code", models.CharField(max_length=10, primary_key=True, serialize=False)),
                (
                    "stage",
                    models.IntegerField(
                        choices=[(0, "None"), (1, "First"), (2, "Second")], db_column="stage_no", default=0
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        **{CONDITION: models.Q(("stage__in", [0, 1, 2]))}, name="constraints_level_states"
                    ),
                    django_logic.constraints.TransitionConstraint(
                        column="stage_no",
                        field="stage",
                        initial=[0],
                        name="constraints_level_moves",
                        table={0: [1], 1: [0, 2], 2: []},
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Odd",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.CharField(default="", max_length=40)),
            ],
            options={
                "constraints": [
                    django_logic.constraints.TransitionConstraint(
                        field="state",
                        initial=[
                            "",
                            "$dl$",
                            "%s and %%",
                            "*/ x",
                            "100%",
                            "5=draft",
                            "Draft",
                            "\\' OR 1=1; --",
                            "`tick`",
                            "back\\slash",
                            "draft",
                            "draft ",
                            "it's",
                            "new\nline",
                            'say "x"',
                            "{a,b}",
                            "žluťoučký",
                            "日本",
                            "🦄",
                        ],
                        name="constraints_odd_moves",
                        table={
                            "": ["it's"],
                            "$dl$": ["{a,b}"],
                            "%s and %%": ["back\\slash"],
                            "*/ x": ["new\nline"],
                            "100%": ["%s and %%"],
                            "5=draft": [],
                            "Draft": ["draft "],
                            "\\' OR 1=1; --": ["`tick`"],
                            "`tick`": ["$dl$"],
                            "back\\slash": ["\\' OR 1=1; --"],
                            "draft": ["Draft"],
                            "draft ": ["5=draft"],
                            "it's": ['say "x"'],
                            "new\nline": ["žluťoučký"],
                            'say "x"': ["100%"],
                            "{a,b}": ["*/ x"],
                            "žluťoučký": ["日本"],
                            "日本": ["🦄"],
                            "🦄": ["draft"],
                        },
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Rush",
            fields=[
                (
                    "order_ptr",
                    models.OneToOneField(
                        auto_created=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        parent_link=True,
                        primary_key=True,
                        serialize=False,
                        to="constraints_app.order",
                    ),
                ),
                ("lane", models.CharField(default="slow", max_length=10)),
            ],
            bases=("constraints_app.order",),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=models.CheckConstraint(
                **{CONDITION: models.Q(("status__in", ["cancelled", "draft", "paid", "placed"]))},
                name="constraints_order_states",
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=django_logic.constraints.TransitionConstraint(
                field="status",
                initial=["draft", "placed"],
                name="constraints_order_moves",
                table={"cancelled": [], "draft": ["cancelled", "placed"], "paid": [], "placed": ["cancelled", "paid"]},
            ),
        ),
        migrations.CreateModel(
            name="OrderProxy",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("constraints_app.order",),
        ),
        migrations.AddConstraint(
            model_name="parcel",
            constraint=django_logic.constraints.TransitionConstraint(
                field="state",
                name="constraints_app_parcel_moves_under_a_name_that_is_far_longer_than_any_database_takes",
                table={"done": [], "new": ["done"]},
            ),
        ),
        migrations.AddConstraint(
            model_name="rush",
            constraint=django_logic.constraints.TransitionConstraint(
                field="lane", name="constraints_rush_lane", table={"fast": [], "slow": ["fast"]}
            ),
        ),
    ]
