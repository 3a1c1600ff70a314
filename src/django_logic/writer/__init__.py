"""
The one writer: nothing else in the library changes a state.

On PostgreSQL a move is one statement; elsewhere the same rows go through the ORM in one transaction; a model that
listens to its saves is written by ``save()``. What the caller holds, a lock or a transaction, is his affair.
"""

from __future__ import annotations

from django_logic.moves import ChangeLost, MoveLost, SequenceTaken
from django_logic.writer.many import apply_many, insert_for_many
from django_logic.writer.one import apply, record_birth, tell
from django_logic.writer.rows import change_row, insert_rows

__all__ = [
    "ChangeLost",
    "MoveLost",
    "SequenceTaken",
    "apply",
    "apply_many",
    "change_row",
    "insert_for_many",
    "insert_rows",
    "record_birth",
    "tell",
]
