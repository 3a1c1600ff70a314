"""
Create the shop's tables, with the moves the database lets pass.
"""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from django_logic import StateConstraint, TransitionConstraint


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="StockItem",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=50)),
                ("price", models.DecimalField(decimal_places=2, max_digits=8)),
                ("on_hand", models.PositiveIntegerField(default=0)),
                ("reserved", models.PositiveIntegerField(default=0)),
            ],
        ),
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
                            ("processing", "Processing"),
                            ("fulfilled", "Fulfilled"),
                            ("cancelled", "Cancelled"),
                        ],
                        db_index=True,
                        default="draft",
                        max_length=12,
                    ),
                ),
                ("reservation", models.CharField(blank=True, max_length=20)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "customer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="orders", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Parcel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="parcels", to="shop.order"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Payment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("amount", models.DecimalField(decimal_places=2, max_digits=8)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("processing", "Processing"),
                            ("succeeded", "Succeeded"),
                            ("failed", "Failed"),
                        ],
                        default="pending",
                        max_length=12,
                    ),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="payments", to="shop.order"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="LedgerLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("amount", models.DecimalField(decimal_places=2, max_digits=8)),
                (
                    "payment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="ledger_lines", to="shop.payment"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="OrderLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("quantity", models.PositiveIntegerField(default=1)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="lines", to="shop.order"
                    ),
                ),
                (
                    "item",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="shop.stockitem"
                    ),
                ),
            ],
        ),
        # makemigrations writes the CheckConstraint that a StateConstraint makes; its keyword differs between the versions
        # of Django that this example runs on.
        migrations.AddConstraint(
            model_name="order",
            constraint=StateConstraint(
                field="status",
                states=["cancelled", "draft", "fulfilled", "placed", "processing"],
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
                    "draft": ["cancelled", "placed"],
                    "fulfilled": [],
                    "placed": ["cancelled", "processing"],
                    "processing": ["cancelled", "fulfilled"],
                },
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=StateConstraint(
                field="status", states=["failed", "pending", "processing", "succeeded"], name="shop_payment_status"
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=TransitionConstraint(
                field="status",
                initial=["pending"],
                name="shop_payment_moves",
                table={"failed": [], "pending": ["processing"], "processing": ["failed", "succeeded"], "succeeded": []},
            ),
        ),
    ]
