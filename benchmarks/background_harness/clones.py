"""
Fill a queue table with copies of its newest row, past triggers and the engine's own calls.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.db import connection
from psycopg import sql


def clone_newest(table: str, rows: int, replaced: Mapping[str, str], *, key: str = "id") -> None:
    """
    Insert that many copies of the row with the greatest key.

    `replaced` gives an SQL expression for each column that has to differ; ``g`` counts the copies from 1.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND table_schema = 'public'"
            " AND is_generated = 'NEVER' ORDER BY ordinal_position",
            [table],
        )
        columns = [name for (name,) in cursor.fetchall() if name != key or key in replaced]
        values = [sql.SQL(replaced[name]) if name in replaced else sql.Identifier("t", name) for name in columns]
        text = sql.SQL("INSERT INTO {0} ({1}) SELECT {2} FROM {0} AS t, generate_series(1, {3}) AS g WHERE t.{4} = {5}")
        newest = sql.SQL("(SELECT {0} FROM {1} ORDER BY {0} DESC LIMIT 1)").format(
            sql.Identifier(key), sql.Identifier(table)
        )
        names = sql.SQL(", ").join([sql.Identifier(name) for name in columns])
        cursor.execute("SET session_replication_role = replica")
        try:
            cursor.execute(
                text.format(
                    sql.Identifier(table),
                    names,
                    sql.SQL(", ").join(values),
                    sql.Literal(rows),
                    sql.Identifier(key),
                    newest,
                )
            )
        finally:
            cursor.execute("RESET session_replication_role")
