"""
Taking each message once: a consumer's work and the note that it was done are one transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from hashlib import sha256
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, IntegrityError, connections, transaction

__all__ = ["inbox"]

Consumer = Callable[..., Any]

#: Texts that MySQL's usual collations take for no other: those do not tell capitals, accents and blanks at the end.
LIKE_NO_OTHER = re.compile(r"[0-9a-z:_./ -]*[0-9a-z:_./-]")
#: What the columns of a consumer and an id hold.
LONGEST_ID = 255


def inbox(
    consumer: Any, *, using: str = DEFAULT_DB_ALIAS, message_id: Callable[..., Any] | None = None
) -> Callable[[Consumer], Consumer]:
    """
    Make a consumer idempotent: a message it has taken does nothing, and returns None.

    ``consumer`` names it for good: another name takes everything anew. The id is the first argument's ``id``, else what
    ``message_id``, called with the consumer's arguments, returns. Two that take the same message at once wait for each
    other, and the second does nothing.
    Transaction: opens one, in which the message is noted and the consumer runs; an error undoes both. What the consumer
    does outside the database is not undone. Raises: ValueError for a message without an id.

    Example::

        @subscribe("order.fulfilled")
        @inbox("loyalty points")
        def add_points(event): ...
    """
    if not isinstance(consumer, str) or not consumer.strip() or len(consumer) > LONGEST_ID:
        raise ImproperlyConfigured(
            f"django_logic.outbox.inbox takes the name of a consumer; found {consumer!r}."
            ' Write @inbox("loyalty points") above the function.'
        )

    def decorate(function: Consumer) -> Consumer:
        @wraps(function)
        def take(*arguments: Any, **keywords: Any) -> Any:
            found = message_id(*arguments, **keywords) if message_id is not None else id_of_first(arguments)
            key = checked_id(consumer, found)
            with transaction.atomic(using=using):
                return function(*arguments, **keywords) if is_first(consumer, key, using) else None

        return take

    return decorate


def id_of_first(arguments: Sequence[Any]) -> Any:
    """
    Return the ``id`` of the first argument, as an event has one.
    """
    return getattr(arguments[0], "id", None) if arguments else None


def checked_id(consumer: str, found: Any) -> str:
    """
    Return the id of a message as it is noted.

    Raises: ValueError for none.
    """
    key = "" if found is None else str(found)
    if not 0 < len(key) <= LONGEST_ID:
        raise ValueError(f"{consumer}: a message needs an id of 1 to {LONGEST_ID} characters; found {key!r}.")
    return key


def is_first(consumer: str, key: str, alias: str) -> bool:
    """
    Note a message; False when it was noted before.

    Transaction: the caller's. Another one that is noting the same message is waited for.
    """
    entry = apps.get_model("django_logic_outbox", "InboxEntry")
    if connections[alias].vendor == "mysql":
        consumer, key = unlike_others(consumer), unlike_others(key)
    try:
        with transaction.atomic(using=alias):
            entry(consumer=consumer, message_id=key).save(using=alias, force_insert=True)
    except IntegrityError:
        return False
    return True


def unlike_others(text: str) -> str:
    """
    Return a text, or a digest of one that MySQL could take for another.
    """
    return text if LIKE_NO_OTHER.fullmatch(text) else f"sha256:{sha256(text.encode()).hexdigest()}"
