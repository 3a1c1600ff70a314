"""
The one reader for each setting, and the check of all of them at boot.

Readers look at ``settings.DJANGO_LOGIC`` on every call, so ``override_settings`` works.
What a setting means is said in ``docs/reference/settings.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from django_logic.numbers import Rule, count, duration

__all__ = [
    "EXECUTION_PULL",
    "EXECUTION_SYNC",
    "LOCKS",
    "LONGEST_QUEUE",
    "audit_level",
    "background_execution",
    "cleanup_days",
    "default_queue",
    "enable_sync",
    "lock_kind",
    "lock_timeout",
    "max_errors",
    "queue_name",
    "register_settings",
    "retry_minutes",
    "strict_hook_signatures",
    "strict_kwargs_serialization",
    "sync_enabled",
    "sync_execution",
    "sync_mode",
    "unknown_keys",
    "unrestorable_hours",
    "validate",
]

EXECUTION_PULL = "pull"
EXECUTION_SYNC = "sync"
LOCKS = ("row", "nowait", "cache")
LONGEST_QUEUE = 100
AUDIT_LEVELS = ("off", "refusals", "all")

_sync_allowed = False
_sync_block: ContextVar[bool] = ContextVar("django_logic_sync_block", default=False)


def one_of(*allowed: str) -> Rule:
    """
    Make a rule that accepts these words.
    """

    def rule(value: Any) -> str | None:
        return (
            None if value in allowed and isinstance(value, str) else f"expected one of {', '.join(map(repr, allowed))}"
        )

    return rule


def flag(value: Any) -> str | None:
    """
    Accept True and False only: the text "false" is a true value to Python and a trap to people.
    """
    return None if isinstance(value, bool) else "expected True or False"


def queue_name(value: Any) -> str | None:
    """
    Accept names that ``--queues`` can list and the column can hold.
    """
    if not isinstance(value, str) or not value.strip():
        return "expected a non-empty text"
    if value != value.strip() or "," in value or not value.isprintable() or len(value) > LONGEST_QUEUE:
        return f"expected no comma, no blank at its ends, no control character and at most {LONGEST_QUEUE} characters"
    return None


DEFAULTS: dict[str, Any] = {
    "LOCK": "row",
    "LOCK_TIMEOUT": 7200,
    "DEFAULT_QUEUE": "django_logic",
    "BACKGROUND_EXECUTION": EXECUTION_PULL,
    "TRANSITION_MESSAGE_MAX_ERRORS": 5,
    "TRANSITION_MESSAGE_RETRY_MINUTES": 2,
    "TRANSITION_MESSAGE_CLEANUP_DAYS": 7,
    "TRANSITION_MESSAGE_UNRESTORABLE_HOURS": 24,
    "AUDIT": "off",
    "STRICT_HOOK_SIGNATURES": False,
    "STRICT_KWARGS_SERIALIZATION": False,
}

RULES: dict[str, Rule] = {
    "LOCK": one_of(*LOCKS),
    "LOCK_TIMEOUT": duration(above=0),
    "DEFAULT_QUEUE": queue_name,
    "BACKGROUND_EXECUTION": one_of(EXECUTION_PULL, EXECUTION_SYNC),
    "TRANSITION_MESSAGE_MAX_ERRORS": count(),
    "TRANSITION_MESSAGE_RETRY_MINUTES": duration(60),
    "TRANSITION_MESSAGE_CLEANUP_DAYS": duration(86_400),
    "TRANSITION_MESSAGE_UNRESTORABLE_HOURS": duration(3_600),
    "AUDIT": one_of(*AUDIT_LEVELS),
    "STRICT_HOOK_SIGNATURES": flag,
    "STRICT_KWARGS_SERIALIZATION": flag,
}


def register_settings(defaults: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """
    Let an optional app add its own keys to the dict, with their rules.
    """
    DEFAULTS.update(defaults)
    RULES.update(rules)


def configured() -> Mapping[str, Any]:
    """
    Return the project's dict, empty when it has none.

    Raises: ImproperlyConfigured when it is not a dict.
    """
    value = getattr(settings, "DJANGO_LOGIC", None)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ImproperlyConfigured(f"settings.DJANGO_LOGIC must be a dict; found {type(value).__name__}.")
    return value


def read(key: str) -> Any:
    """
    Return a setting's value, or its default.
    """
    return configured().get(key, DEFAULTS[key])


def validate() -> None:
    """
    Refuse wrong values at boot.

    Raises: ImproperlyConfigured naming the key, what was found and what fits.
    """
    for key, value in configured().items():
        complaint = RULES[key](value) if key in RULES else None
        if complaint:
            raise ImproperlyConfigured(f"settings.DJANGO_LOGIC[{key!r}]: {complaint}; found {value!r}.")
    if read("BACKGROUND_EXECUTION") == EXECUTION_SYNC and not _sync_allowed:
        raise ImproperlyConfigured(
            "settings.DJANGO_LOGIC['BACKGROUND_EXECUTION']: 'sync' is for tests and needs"
            " django_logic.conf.enable_sync() in the settings module first; found no such call. Call it, or use 'pull'."
        )


def unknown_keys() -> list[str]:
    """
    List the keys of the project's dict that nothing reads.
    """
    return sorted((key for key in configured() if key not in DEFAULTS), key=str)


def lock_kind() -> str:
    """
    Return which lock a transition takes when it names none: row, nowait or cache.
    """
    return str(read("LOCK"))


def lock_timeout() -> int:
    """
    Return after how many seconds a cache lock ends by itself; whole ones, since caches cut off the rest.
    """
    return math.ceil(float(read("LOCK_TIMEOUT")))


def audit_level() -> str:
    """
    Return which calls leave an AuditEntry: off, refusals or all.
    """
    return str(read("AUDIT"))


def strict_hook_signatures() -> bool:
    """
    Return whether a hook that can't take the instance refuses the bind instead of warning.
    """
    return read("STRICT_HOOK_SIGNATURES") is True


def default_queue() -> str:
    """
    Return the queue of a background transition that names none.
    """
    return str(read("DEFAULT_QUEUE"))


def max_errors() -> int:
    """
    Return how many attempts a background row may spend.
    """
    return int(read("TRANSITION_MESSAGE_MAX_ERRORS"))


def retry_minutes() -> float:
    """
    Return the pause between attempts, in minutes.
    """
    return float(read("TRANSITION_MESSAGE_RETRY_MINUTES"))


def cleanup_days() -> float:
    """
    Return for how many days completed background rows are kept.
    """
    return float(read("TRANSITION_MESSAGE_CLEANUP_DAYS"))


def unrestorable_hours() -> float:
    """
    Return for how many hours a row waits for code that knows it.
    """
    return float(read("TRANSITION_MESSAGE_UNRESTORABLE_HOURS"))


def strict_kwargs_serialization() -> bool:
    """
    Return whether keywords that can't be stored faithfully are refused instead of warned about.
    """
    return read("STRICT_KWARGS_SERIALIZATION") is True


def enable_sync() -> None:
    """
    Permit ``BACKGROUND_EXECUTION = "sync"`` in this process; for test settings only.
    """
    global _sync_allowed
    _sync_allowed = True


def sync_enabled() -> bool:
    """
    Return whether `enable_sync` was called.
    """
    return _sync_allowed


@contextmanager
def sync_execution() -> Iterator[None]:
    """
    Run background work inline within this block; for tests.
    """
    token = _sync_block.set(True)
    try:
        yield
    finally:
        _sync_block.reset(token)


def background_execution() -> str:
    """
    Return how background work runs by settings: pull or sync.
    """
    return str(read("BACKGROUND_EXECUTION"))


def sync_mode() -> bool:
    """
    Return whether background work runs inline here and now.
    """
    return _sync_block.get() or background_execution() == EXECUTION_SYNC
