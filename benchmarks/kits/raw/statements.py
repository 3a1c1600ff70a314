"""
The moves as plain SQL.
"""

from __future__ import annotations

import uuid
from string import Template
from typing import Any

from django.db import models
from django.utils import timezone
from psycopg.types.json import Jsonb

from harness.contender import START, TARGET
from harness.statement import PROBE_KEY, Statement

# Update one row where it is expected to be, and number its record, in one statement.
MOVE_ONE = Template(
    """
WITH moved AS (
    UPDATE "$orders" SET "state" = %(target)s, "updated_at" = %(now)s
    WHERE "id" = %(key)s AND "state" = %(start)s
    RETURNING "id"
)
INSERT INTO "$history" (
    "app_label", "model_name", "instance_id", "process_name", "field_name", "action", "from_state", "to_state",
    "actor_id", "actor_label", "reason", "occurred_at", "transition_id", "root_id", "parent_id", "metadata", "sequence"
)
SELECT %(app_label)s, %(model_name)s, %(instance_id)s, 'process', 'state', 'approve', %(start)s, %(target)s,
    '', '', '', %(now)s, %(transition_id)s, %(transition_id)s, NULL, %(metadata)s,
    COALESCE((
        SELECT MAX("sequence") FROM "$history"
        WHERE "instance_id" = %(instance_id)s AND "model_name" = %(model_name)s
            AND "app_label" = %(app_label)s AND "process_name" = 'process'
    ), 0) + 1
FROM moved
RETURNING "sequence"
"""
)

# The same for a whole list of keys.
MOVE_MANY = Template(
    """
WITH moved AS (
    UPDATE "$orders" SET "state" = %(target)s, "updated_at" = %(now)s
    WHERE "id" = ANY(%(keys)s) AND "state" = %(start)s
    RETURNING "id"
)
INSERT INTO "$history" (
    "app_label", "model_name", "instance_id", "process_name", "field_name", "action", "from_state", "to_state",
    "actor_id", "actor_label", "reason", "occurred_at", "transition_id", "root_id", "parent_id", "metadata", "sequence"
)
SELECT %(app_label)s, %(model_name)s, moved."id"::text, 'process', 'state', 'approve', %(start)s, %(target)s,
    '', '', '', %(now)s, ids.fresh, ids.fresh, NULL, %(metadata)s,
    COALESCE((
        SELECT MAX("sequence") FROM "$history" AS earlier
        WHERE earlier."instance_id" = moved."id"::text AND earlier."model_name" = %(model_name)s
            AND earlier."app_label" = %(app_label)s AND earlier."process_name" = 'process'
    ), 0) + 1
FROM moved CROSS JOIN LATERAL (SELECT gen_random_uuid() AS fresh WHERE moved."id" IS NOT NULL) AS ids
"""
)


def move_one(model: type[models.Model], history: type[models.Model]) -> Statement:
    """
    Return the statement for one row.
    """
    parameters: dict[str, Any] = {
        **_common(model),
        "key": PROBE_KEY,
        "instance_id": str(PROBE_KEY),
        "transition_id": uuid.uuid4(),
    }
    return Statement(text=_named(MOVE_ONE, model, history), parameters=parameters)


def move_many(model: type[models.Model], history: type[models.Model], keys: list[int]) -> tuple[str, dict[str, Any]]:
    """
    Return the statement for a list of rows and its parameters.
    """
    return _named(MOVE_MANY, model, history), {**_common(model), "keys": keys}


def _common(model: type[models.Model]) -> dict[str, Any]:
    return {
        "app_label": model._meta.app_label,
        "model_name": model._meta.model_name,
        "start": START,
        "target": TARGET,
        "now": timezone.now(),
        "metadata": Jsonb({}),
    }


def _named(template: Template, model: type[models.Model], history: type[models.Model]) -> str:
    return template.substitute(orders=model._meta.db_table, history=history._meta.db_table)
