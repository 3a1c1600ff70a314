"""
Let orders be dispatched in the background: two states more, in the column and in both constraints.
"""

from __future__ import annotations

from django.db import migrations, models

from django_logic import StateConstraint, TransitionConstraint


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0001_initial"),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="order", name="shop_order_status"),
        migrations.RemoveConstraint(model_name="order", name="shop_order_moves"),
        migrations.AddField(
            model_name="parcel",
            name="tracking",
            field=models.CharField(blank=True, default="", max_length=20),
            preserve_default=False,
        ),
        migrations.AlterField(
            model_name="order",
            name="status",
            field=models.CharField(
                choices=[
                    ("draft", "Draft"),
                    ("placed", "Placed"),
                    ("processing", "Processing"),
                    ("dispatching", "Dispatching"),
                    ("on_hold", "On hold"),
                    ("fulfilled", "Fulfilled"),
                    ("cancelled", "Cancelled"),
                ],
                db_index=True,
                default="draft",
                max_length=12,
            ),
        ),
        # makemigrations writes the CheckConstraint that a StateConstraint makes; its keyword differs between the versions
        # of Django that this example runs on.
        migrations.AddConstraint(
            model_name="order",
            constraint=StateConstraint(
                field="status",
                states=["cancelled", "dispatching", "draft", "fulfilled", "on_hold", "placed", "processing"],
                name="shop_order_status",
            ),
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=TransitionConstraint(
                field="status",
                initial=["draft"],
                name="shop_order_moves",
                table={
                    "cancelled": [],
                    "dispatching": ["fulfilled", "on_hold"],
                    "draft": ["cancelled", "placed"],
                    "fulfilled": [],
                    "on_hold": ["cancelled", "dispatching"],
                    "placed": ["cancelled", "processing"],
                    "processing": ["cancelled", "dispatching", "fulfilled"],
                },
            ),
        ),
    ]
