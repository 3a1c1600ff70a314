"""
The settings of events: one reader for each key of ``DJANGO_LOGIC`` that begins with ``OUTBOX_``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from django_logic import conf, numbers
from django_logic.backoff import Backoff

__all__ = [
    "BLOCK",
    "OWN",
    "SKIP",
    "SUBSCRIBERS",
    "backoff",
    "has_own_relay",
    "inbox_days",
    "keep_days",
    "lease_seconds",
    "max_attempts",
    "max_payload_bytes",
    "publishers",
    "register",
    "skips",
]

OWN, NONE = "own", "none"
BLOCK, SKIP = "block", "skip"

#: Where events go when nobody says anything: to functions in Python.
SUBSCRIBERS = "django_logic.outbox.publishers.local.Subscribers"
KEYS_OF_A_PUBLISHER = ("BACKEND", "OPTIONS", "TOPICS")
LONGEST_NAME = 100

DEFAULTS: dict[str, Any] = {
    "OUTBOX_RELAY": OWN,
    "OUTBOX_PUBLISHERS": {"subscribers": {"BACKEND": SUBSCRIBERS}},
    "OUTBOX_ON_DEAD": {"*": BLOCK},
    "OUTBOX_MAX_ATTEMPTS": 10,
    "OUTBOX_MAX_PAYLOAD_BYTES": 262_144,
    "OUTBOX_RETRY_SECONDS": 5,
    "OUTBOX_RETRY_LIMIT_SECONDS": 900,
    "OUTBOX_LEASE_SECONDS": 60,
    "OUTBOX_KEEP_DAYS": 7,
    "OUTBOX_INBOX_DAYS": 30,
}


def publishers_rule(value: Any) -> str | None:
    """
    Say what is wrong with a map of publishers.
    """
    if not isinstance(value, Mapping) or not value:
        return 'expected {"name": {"BACKEND": "dotted.path", "OPTIONS": {…}, "TOPICS": ["order.*"]}}'
    if len({str(name).casefold() for name in value}) < len(value):
        return "expected names that differ in more than capitals, which some databases don't tell apart"
    for name, entry in value.items():
        if not isinstance(name, str) or not name or name.strip() != name or "," in name or len(name) > LONGEST_NAME:
            return f"expected names of at most {LONGEST_NAME} characters without commas, or blanks at their ends"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("BACKEND"), str):
            return f"expected a dict with the dotted path of a publisher as BACKEND under {name!r}"
        if any(key not in KEYS_OF_A_PUBLISHER for key in entry):
            return f"expected only {', '.join(KEYS_OF_A_PUBLISHER)} under {name!r}"
        if not isinstance(entry.get("OPTIONS", {}), Mapping):
            return f"expected a dict as OPTIONS under {name!r}"
        topics = entry.get("TOPICS", [])
        is_list = isinstance(topics, (list, tuple)) and all(isinstance(topic, str) for topic in topics)
        if not is_list or ("TOPICS" in entry and not topics):
            return f"expected a list of topics as TOPICS under {name!r}, or no TOPICS for all"
    return None


def policies_rule(value: Any) -> str | None:
    """
    Say what is wrong with a map of policies.
    """
    is_map = isinstance(value, Mapping) and all(isinstance(topic, str) for topic in value)
    if not is_map or not all(policy in (BLOCK, SKIP) for policy in value.values()):
        return f'expected {{"order.viewed": "{SKIP}", "*": "{BLOCK}"}}'
    return 'expected "*" behind all others, which it hides' if "*" in list(value)[:-1] else None


def register() -> None:
    """
    Add these keys to the dict of settings, with their rules.
    """
    rules: dict[str, numbers.Rule] = {
        "OUTBOX_RELAY": conf.one_of(OWN, NONE),
        "OUTBOX_PUBLISHERS": publishers_rule,
        "OUTBOX_ON_DEAD": policies_rule,
        "OUTBOX_MAX_ATTEMPTS": numbers.count(),
        "OUTBOX_MAX_PAYLOAD_BYTES": numbers.count(),
        "OUTBOX_RETRY_SECONDS": numbers.duration(),
        "OUTBOX_RETRY_LIMIT_SECONDS": numbers.duration(),
        "OUTBOX_LEASE_SECONDS": numbers.duration(least=1),
        "OUTBOX_KEEP_DAYS": numbers.duration(86_400),
        "OUTBOX_INBOX_DAYS": numbers.duration(86_400, above=0),
    }
    conf.register_settings(DEFAULTS, rules)


def has_own_relay() -> bool:
    """
    Tell whether our relay delivers; else somebody reads the rows of messages from the database's log.
    """
    return str(conf.read("OUTBOX_RELAY")) == OWN


def publishers() -> Mapping[str, Mapping[str, Any]]:
    """
    Return how each destination is reached.
    """
    found: Mapping[str, Mapping[str, Any]] = conf.read("OUTBOX_PUBLISHERS")
    return found


def skips(topic: str) -> bool:
    """
    Tell whether later messages of a key pass one of this topic that is dead; the first pattern that fits says.
    """
    policies: Mapping[str, str] = conf.read("OUTBOX_ON_DEAD")
    return next((policy == SKIP for pattern, policy in policies.items() if fnmatchcase(topic, pattern)), False)


def max_attempts() -> int:
    """
    Return after how many attempts a message is dead.
    """
    return int(conf.read("OUTBOX_MAX_ATTEMPTS"))


def max_payload_bytes() -> int:
    """
    Return how large a payload may be, as JSON in UTF-8.
    """
    return int(conf.read("OUTBOX_MAX_PAYLOAD_BYTES"))


def backoff() -> Backoff:
    """
    Return the pauses between attempts.
    """
    first, limit = float(conf.read("OUTBOX_RETRY_SECONDS")), float(conf.read("OUTBOX_RETRY_LIMIT_SECONDS"))
    return Backoff(first=first, limit=max(first, limit), jitter=0.25)


def lease_seconds() -> float:
    """
    Return for how long a claim keeps messages from other relays.
    """
    return float(conf.read("OUTBOX_LEASE_SECONDS"))


def keep_days() -> float:
    """
    Return for how many days messages are kept that everybody has got.
    """
    return float(conf.read("OUTBOX_KEEP_DAYS"))


def inbox_days() -> float:
    """
    Return for how many days a consumer remembers a message it has taken.
    """
    return float(conf.read("OUTBOX_INBOX_DAYS"))
