"""
Accounting for attempts whose process ended without a word: crashed, killed past a limit, or put back on shutdown.

It waits for no lock: whoever writes it has others to serve. Until it lands it is tried again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from uuid import UUID

from django.db import connections, transaction

from django_logic import hooks
from django_logic.background import settle
from django_logic.background.claim import TokenLost
from django_logic.background.models import TransitionMessage
from django_logic.background.restore import declared
from django_logic.background.retry import pause_after, retry_of

__all__ = ["Account", "Fate", "enter"]


class Fate(StrEnum):
    """
    Name why an attempt ended without a word.
    """

    CRASHED = "crashed"
    TIMEOUT = "timeout"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """
    Hold what there is to say of one attempt.
    """

    message_id: int
    token: str
    fate: Fate
    text: str = ""

    def as_line(self) -> bytes:
        """
        Write it as one line.
        """
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Account:
        """
        Read it back.
        """
        facts = json.loads(line)
        return cls(**{**facts, "fate": Fate(facts["fate"])})


def enter(account: Account, alias: str) -> bool:
    """
    Write an account on its row; return False while somebody still holds the row, as a session that dies slowly.

    Transaction: opens its own. A row that has ended or is another claim's needs no account.
    """
    rows = TransitionMessage.objects.using(alias).open()
    ours = rows.filter(pk=account.message_id, claim_token=UUID(account.token))
    with transaction.atomic(using=alias):
        lockable = ours
        if connections[alias].features.has_select_for_update_skip_locked:
            lockable = ours.select_for_update(skip_locked=True)
        message = lockable.first()
        if message is not None:
            write(account, message, alias)
            return True
    return not ours.exists()


def write(account: Account, message: TransitionMessage, alias: str) -> None:
    """
    Put the row back, with an error or without; the next claim gives up a row whose attempts are spent.
    """
    try:
        if account.fate is Fate.RELEASED:
            settle.put_back(message, alias, 0)
            return
        is_spent = message.attempts_started >= message.attempts_allowed
        pause = 0.0 if is_spent else pause_after(retry_of(declared(message)), message.attempts_started)
        settle.fail_attempt(message, alias, settle.told(account.text, str(account.fate)), pause)
        hooks.logger.error("%s: attempt %d %s: %s", message, message.attempts_started, account.fate, account.text)
    except TokenLost:  # between the read and the write, where rows can't be locked
        return
