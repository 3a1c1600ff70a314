"""
One attempt as a pgbench script, written by hand against the library's own tables.

The claim commits by itself and does not wait for the disk; the attempt's transaction does.
"""

from __future__ import annotations

from string import Template

from django.db import models

from django_logic.background.models import Cancellation, TransitionMessage
from django_logic.models import StatusChange
from kits.background_jobs.models import Event, Order

ATTEMPT = Template(
    """
WITH picked AS MATERIALIZED (
    SELECT head.id FROM UNNEST(ARRAY['bench']::varchar[]) AS lane (queue_name)
    CROSS JOIN LATERAL (
        SELECT id, run_at FROM "$messages"
        WHERE NOT is_completed AND queue_name = lane.queue_name AND priority = 0 AND run_at <= STATEMENT_TIMESTAMP()
        ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS head
    ORDER BY head.run_at, head.id LIMIT 1
)
UPDATE "$messages" AS m SET
    attempts_started = m.attempts_started + 1, claim_token = gen_random_uuid(), worker = 'pgbench',
    backend_pid = PG_BACKEND_PID(), started_at = STATEMENT_TIMESTAMP(), modified = STATEMENT_TIMESTAMP(),
    run_at = STATEMENT_TIMESTAMP() + INTERVAL '10 seconds'
FROM picked, (SELECT SET_CONFIG('synchronous_commit', 'off', true)) AS quiet
WHERE m.id = picked.id
RETURNING $message_columns \\gset m_
BEGIN;
SELECT EXISTS (SELECT FROM "$cancellations" WHERE message_id = m.id) FROM "$messages" AS m
WHERE m.id = :m_id AND m.claim_token = $token AND NOT m.is_completed FOR NO KEY UPDATE OF m;
SELECT $order_columns FROM "$orders" WHERE id = $order;
$work
WITH moved AS (
    UPDATE "$orders" SET state = 'approved', updated_at = STATEMENT_TIMESTAMP()
    WHERE id = $order AND state = 'processing'
    RETURNING id
), recorded AS (
    INSERT INTO "$history" (
        app_label, model_name, instance_id, process_name, field_name, action, from_state, to_state,
        actor_id, actor_label, reason, occurred_at, transition_id, root_id, parent_id, metadata, sequence
    )
    SELECT 'bench_jobs', 'order', $key, 'process', 'state', 'approve', 'processing', 'approved',
        '', '', '', STATEMENT_TIMESTAMP(), $transition, $transition, NULL, '{}'::jsonb, (
            SELECT COALESCE(MAX(sequence), 0) + 1 FROM "$history"
            WHERE instance_id = $key AND model_name = 'order' AND app_label = 'bench_jobs' AND process_name = 'process'
        )
    FROM moved
    RETURNING sequence
), ended AS (
    UPDATE "$messages" AS m SET
        is_completed = true, outcome = 'succeeded', completed_at = STATEMENT_TIMESTAMP(),
        modified = STATEMENT_TIMESTAMP(), duration_ms = 0
    FROM recorded WHERE m.id = :m_id AND m.claim_token = $token
    RETURNING m.id
)
SELECT sequence FROM recorded, ended;
COMMIT;
"""
)

WRITE = Template(
    """INSERT INTO "$events" (topic, payload, created_at)
VALUES ('order.approved', jsonb_build_object('order_id', $order), STATEMENT_TIMESTAMP()) RETURNING id;"""
)


def attempt(*, has_write: bool, is_prepared: bool) -> str:
    """
    Return the script of one attempt.

    Values that the claim answered are pasted into plain statements, as Django pastes them, or bound to prepared ones.
    """
    names = {
        "messages": TransitionMessage._meta.db_table,
        "cancellations": Cancellation._meta.db_table,
        "orders": Order._meta.db_table,
        "history": StatusChange._meta.db_table,
        "events": Event._meta.db_table,
        "message_columns": _columns(TransitionMessage, "m."),
        "order_columns": _columns(Order, ""),
        "order": ":m_instance_id::bigint",
        "key": _value("m_instance_id", "varchar", is_prepared),
        "token": _value("m_claim_token", "uuid", is_prepared),
        "transition": _value("m_transition_id", "uuid", is_prepared),
    }
    work = WRITE.substitute(names) if has_write else ""
    return ATTEMPT.substitute(names, work=work).strip() + "\n"


def _value(name: str, kind: str, is_prepared: bool) -> str:
    return f":{name}::{kind}" if is_prepared else f"':{name}'::{kind}"


def _columns(model: type[models.Model], prefix: str) -> str:
    return ", ".join(f'{prefix}"{each.column}"' for each in model._meta.concrete_fields)
