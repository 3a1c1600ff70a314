"""
Holding the row while a call is judged and worked: row, nowait, cache or none.

Whatever is taken here is given back on every exit, KeyboardInterrupt included.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from uuid import uuid4

from django.core.cache import cache
from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError, connections, models, transaction

from django_logic import conf
from django_logic.call import Call, open_calls
from django_logic.judge import busy_error
from django_logic.reads import Reading, Shape, read_row
from django_logic.states import plain
from django_logic.subject import owner_pk

__all__ = ["cache_key", "hold", "is_transient", "read", "take_write_lock", "translated"]

logger = logging.getLogger("django-logic.transition")

#: SQLite: take the write lock before the first read, since a read that turns into a write later fails at once.
TAKE_WRITE_LOCK = "UPDATE {table} SET {pk} = {pk} WHERE 0"

#: SQLite: how long a statement waits for the write lock.
READ_PATIENCE = "PRAGMA busy_timeout"
SET_PATIENCE = "PRAGMA busy_timeout = {milliseconds}"

#: SQLSTATE of lock_not_available, deadlock_detected and serialization_failure.
TRANSIENT_SQLSTATES = ("55P03", "40P01", "40001")
#: MySQL and MariaDB: lock wait time-out, deadlock, row changed since the snapshot, NOWAIT.
TRANSIENT_MYSQL = (1205, 1213, 1020, 3572)
#: SQLITE_BUSY and SQLITE_LOCKED, extended codes cut to their primary one.
TRANSIENT_SQLITE = (5, 6)


def is_transient(error: BaseException) -> bool:
    """
    Tell a lock time-out, deadlock or serialization failure from every other database error.
    """
    cause = error.__cause__ if isinstance(error, DatabaseError) and error.__cause__ is not None else error
    sqlite_code = getattr(cause, "sqlite_errorcode", None)
    if sqlite_code is not None:
        return sqlite_code & 0xFF in TRANSIENT_SQLITE
    if getattr(cause, "sqlstate", None) is not None:
        return getattr(cause, "sqlstate", None) in TRANSIENT_SQLSTATES
    if getattr(cause, "pgcode", None) is not None:
        return getattr(cause, "pgcode", None) in TRANSIENT_SQLSTATES
    return isinstance(error, DatabaseError) and bool(cause.args) and cause.args[0] in TRANSIENT_MYSQL


@contextmanager
def translated(call: Call) -> Iterator[None]:
    """
    Turn a transient database error within the block into the refusal that says so.
    """
    try:
        yield
    except DatabaseError as error:
        if is_transient(error):
            raise busy_error(
                call, f"the database gave way to another transaction ({error}). Try again shortly"
            ) from error
        raise


@contextmanager
def hold(call: Call, kind: str) -> Iterator[None]:
    """
    Keep everybody else from moving the object within the block.

    row, nowait: opens a transaction (a savepoint in the caller's); the lock itself is taken by `read`.
    cache: takes the state lock in the default cache, opens no transaction. none: holds nothing.
    Raises: TransitionTemporarilyUnavailable when it is held elsewhere, or by the very call this one is made from.
    """
    if kind == "none":
        yield
        return
    held = open_calls.get()
    if call.key in held:
        raise busy_error(
            call, "the call it was made from is still moving this object. Start follow-up work from a callback"
        )
    # The mark ends before the transaction: work that hooks scheduled for after the commit may move the object again.
    with cache_lock(call) if kind == "cache" else transaction.atomic(using=call.alias):
        token = open_calls.set(held | {call.key})
        try:
            yield
        finally:
            open_calls.reset(token)


def cache_key(call: Call) -> str:
    """
    Return the key of the state lock: database, declaring table, column and primary key, hashed to a safe length.
    """
    owner = call.column.owner._meta
    name = f"{call.alias}-{owner.db_table}-{call.column.field.name}-{owner_pk(call.column, call.instance)}"
    return "django_logic:" + hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


@contextmanager
def cache_lock(call: Call) -> Iterator[None]:
    """
    Hold the state lock in the default cache; give back only what is still ours.
    """
    key, token = cache_key(call), uuid4().hex
    if not cache.add(key, token, conf.lock_timeout()):
        logger.info("%s: lock of %s is held elsewhere (%s)", call.label, call.subject, key)
        raise busy_error(call, "its state lock is held elsewhere. Try again shortly")
    try:
        yield
    finally:
        give_back(key, token)


def give_back(key: str, token: str) -> None:
    """
    Delete the state lock if it is still ours; a cache that fails now can't change what was committed.
    """
    try:
        if cache.get(key) == token:
            cache.delete(key)
    except Exception as error:  # whatever the cache backend raises
        logger.warning("the state lock %s was not given back (%r); it ends by itself after LOCK_TIMEOUT", key, error)


def read(call: Call, kind: str, *, whole: bool) -> Any:
    """
    Lock and read the row in one statement; return its state and refresh the instance from it.

    ``whole`` refreshes every loaded field, otherwise the state alone. Kind none reads without a lock.
    Transaction: row and nowait need an open one and hold the lock until its end. Kind cache opens its own and lets go
    of the row at once: it only waits for whoever moved the object and has not committed yet.
    Raises: the model's DoesNotExist when the row is gone.
    """
    columns = wanted_columns(call, whole)
    with transaction.atomic(using=call.alias) if kind == "cache" else nullcontext():
        row = None if call.instance.pk is None else fetch(call, kind, columns)
    if row is None:
        raise missing(call)
    attributes = dict(zip(columns, row, strict=True))
    if whole:
        refresh(call, attributes)
    return plain(attributes[call.column.field.attname])


def wanted_columns(call: Call, whole: bool) -> tuple[str, ...]:
    """
    Return the attributes to read: what the instance has loaded, and its state.
    """
    state = call.column.field.attname
    if not whole:
        return (state,)
    loaded = call.instance.__dict__
    return tuple(
        entry.attname
        for entry in type(call.instance)._meta.concrete_fields
        if entry.attname in loaded or entry.attname == state
    )


def fetch(call: Call, kind: str, columns: tuple[str, ...]) -> Any:
    """
    Read the row, locked where the kind and the database can.
    """
    connection = connections[call.alias]
    locking = kind != "none"
    if locking and not connection.features.has_select_for_update:
        take_write_lock(call.column.owner, call.alias, nowait=kind == "nowait")
        locking = False
    nowait = kind == "nowait" and connection.features.has_select_for_update_nowait
    shape = Shape(type(call.instance), "pk", columns, locking, nowait)
    return read_row(call.alias, Reading(shape, call.instance.pk))


def take_write_lock(model: type[models.Model], alias: str, *, nowait: bool = False) -> None:
    """
    Make this transaction the writer before it reads, where a database has one write lock for all.
    """
    connection, options = connections[alias], model._meta
    quote = connection.ops.quote_name
    with connection.cursor() as cursor, no_patience(cursor) if nowait else nullcontext():
        cursor.execute(TAKE_WRITE_LOCK.format(table=quote(options.db_table), pk=quote(str(options.pk.column))))


@contextmanager
def no_patience(cursor: Any) -> Iterator[None]:
    """
    Let SQLite give up at once within the block instead of waiting out its busy time-out.
    """
    cursor.execute(READ_PATIENCE)
    (milliseconds,) = cursor.fetchone()
    cursor.execute(SET_PATIENCE.format(milliseconds=0))
    try:
        yield
    finally:
        cursor.execute(SET_PATIENCE.format(milliseconds=int(milliseconds)))


def refresh(call: Call, attributes: dict[str, Any]) -> None:
    """
    Put fresh values on the instance; say which differing ones they replaced.

    Related objects are forgotten, so that hooks load them again.
    """
    held = call.instance.__dict__
    replaced = [name for name, value in attributes.items() if name in held and held[name] != value]
    options: Any = type(call.instance)._meta
    related: list[Any] = [entry for entry in (*options.concrete_fields, *options.related_objects) if entry.is_relation]
    for entry in related:
        if entry.is_cached(call.instance):
            entry.delete_cached_value(call.instance)
    held.pop("_prefetched_objects_cache", None)
    held.update(attributes)
    if replaced:
        names = ", ".join(sorted(replaced))
        logger.info("%s: %s was stale; replaced %s by what the database holds", call.label, call.subject, names)


def missing(call: Call) -> ObjectDoesNotExist:
    """
    Build the error for an object without a row.
    """
    saved = (
        "its row is gone" if owner_pk(call.column, call.instance) is not None else "it has no row yet. Save it first"
    )
    model: Any = type(call.instance)
    error: ObjectDoesNotExist = model.DoesNotExist(f"{call.label}: {call.subject}: {saved}.")
    return error
