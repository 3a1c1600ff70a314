"""
Prove that a wrong setting is refused at boot and a right one is read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic import conf

NAN, INFINITY = float("nan"), float("inf")
NO_NUMBERS = ["5", "", None, True, False, NAN, INFINITY, -INFINITY, [5], -1, 10**400, -(10**400), 1e300]
NO_TEXTS = ["", "  ", None, 5, True, ["django_logic"]]
NO_FLAGS = ["false", "true", "", None, 0, 1, [True]]
NO_WORDS = ["", None, True, 5, ["row"], "ROW"]

BAD: list[tuple[str, Any]] = [
    *(("LOCK", value) for value in [*NO_WORDS, "rows", "none", "skip_locked"]),
    *(("LOCK_TIMEOUT", value) for value in [*NO_NUMBERS, 0]),
    *(("DEFAULT_QUEUE", value) for value in NO_TEXTS),
    *(("BACKGROUND_EXECUTION", value) for value in [*NO_WORDS, "push", "async", "celery"]),
    *(("TRANSITION_MESSAGE_MAX_ERRORS", value) for value in [*NO_NUMBERS, 0, 2.5]),
    *(("TRANSITION_MESSAGE_RETRY_MINUTES", value) for value in NO_NUMBERS),
    *(("TRANSITION_MESSAGE_CLEANUP_DAYS", value) for value in NO_NUMBERS),
    *(("TRANSITION_MESSAGE_UNRESTORABLE_HOURS", value) for value in NO_NUMBERS),
    *(("AUDIT", value) for value in [*NO_WORDS, "on", "refusal", False]),
    *(("STRICT_HOOK_SIGNATURES", value) for value in NO_FLAGS),
    *(("STRICT_KWARGS_SERIALIZATION", value) for value in NO_FLAGS),
]

GOOD: list[tuple[str, Any]] = [
    *(("LOCK", value) for value in ("row", "nowait", "cache")),
    *(("LOCK_TIMEOUT", value) for value in (1, 0.5, 7200)),
    ("DEFAULT_QUEUE", "shop.slow"),
    ("BACKGROUND_EXECUTION", "pull"),
    *(("TRANSITION_MESSAGE_MAX_ERRORS", value) for value in (1, 3.0)),
    *(("TRANSITION_MESSAGE_RETRY_MINUTES", value) for value in (0, 0.5, 10)),
    *(("TRANSITION_MESSAGE_CLEANUP_DAYS", value) for value in (0, 7)),
    ("TRANSITION_MESSAGE_UNRESTORABLE_HOURS", 1),
    *(("AUDIT", value) for value in ("off", "refusals", "all")),
    *(("STRICT_HOOK_SIGNATURES", value) for value in (True, False)),
    *(("STRICT_KWARGS_SERIALIZATION", value) for value in (True, False)),
]

DEFAULTS = {
    conf.lock_kind: "row",
    conf.lock_timeout: 7200,
    conf.default_queue: "django_logic",
    conf.background_execution: "pull",
    conf.max_errors: 5,
    conf.retry_minutes: 2,
    conf.cleanup_days: 7,
    conf.unrestorable_hours: 24,
    conf.audit_level: "off",
    conf.strict_hook_signatures: False,
    conf.strict_kwargs_serialization: False,
}

BOOT = """
import django
from django.conf import settings
if {sync}:
    from django_logic.conf import enable_sync
    enable_sync()
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_logic"],
    DJANGO_LOGIC={value!r},
)
django.setup()
print("booted")
"""


def boot(value: Any, *, sync: bool = False) -> tuple[str, str]:
    """
    Start Django with this setting in a process of its own; return its output and the last line of its complaint.
    """
    program = BOOT.format(sync=sync, value=value)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip(), (answer.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_wrong_value_is_refused_by_name(settings: Any, key: str, value: Any) -> None:
    """
    A value of the wrong type or out of range is refused, naming the key, what fits and what was found.
    """
    settings.DJANGO_LOGIC = {key: value}

    with pytest.raises(ImproperlyConfigured) as caught:
        conf.validate()

    words = str(caught.value)
    assert f"settings.DJANGO_LOGIC[{key!r}]" in words
    assert "expected" in words
    assert repr(value) in words


@pytest.mark.parametrize(("key", "value"), GOOD)
def test_right_value_is_accepted(settings: Any, key: str, value: Any) -> None:
    """
    Every value the contract names passes.
    """
    settings.DJANGO_LOGIC = {key: value}

    conf.validate()

    assert conf.configured() == {key: value}


@pytest.mark.parametrize("value", [[], "LOCK", 5, True, ["LOCK"], ()])
def test_setting_that_is_no_dict_is_refused(settings: Any, value: Any) -> None:
    """
    The setting is one dict.
    """
    settings.DJANGO_LOGIC = value

    with pytest.raises(ImproperlyConfigured, match="must be a dict"):
        conf.validate()


@pytest.mark.parametrize("value", [None, {}])
def test_every_key_has_a_default(settings: Any, value: Any) -> None:
    """
    Without any configuration every reader answers as the contract says.
    """
    settings.DJANGO_LOGIC = value

    conf.validate()

    assert {reader: reader() for reader in DEFAULTS} == DEFAULTS


def test_missing_setting_means_all_defaults(settings: Any) -> None:
    """
    A project that never heard of the dict boots.
    """
    if hasattr(settings, "DJANGO_LOGIC"):
        del settings.DJANGO_LOGIC

    conf.validate()

    assert conf.lock_kind() == "row"


def test_reader_follows_an_override(settings: Any) -> None:
    """
    Settings are read at every call, so a test may override one.
    """
    settings.DJANGO_LOGIC = {"LOCK": "nowait", "AUDIT": "all", "LOCK_TIMEOUT": 3}

    assert (conf.lock_kind(), conf.audit_level(), conf.lock_timeout()) == ("nowait", "all", 3.0)


def test_sync_execution_needs_to_be_enabled_first(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    ``"sync"`` is refused with the mend until ``enable_sync()`` ran.
    """
    monkeypatch.setattr(conf, "_sync_allowed", False)
    settings.DJANGO_LOGIC = {"BACKGROUND_EXECUTION": "sync"}

    with pytest.raises(ImproperlyConfigured, match=r"enable_sync\(\)"):
        conf.validate()
    conf.enable_sync()

    conf.validate()
    assert conf.sync_mode() is True


def test_sync_execution_block_ends_with_the_block(settings: Any) -> None:
    """
    ``sync_execution()`` holds for its block only, also when the block fails.
    """
    settings.DJANGO_LOGIC = {}

    inside = []

    def fails() -> None:
        with conf.sync_execution():
            inside.append(conf.sync_mode())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()

    assert (inside, conf.sync_mode()) == ([True], False)


def test_unknown_keys_are_listed(settings: Any) -> None:
    """
    Keys that nothing reads are named, of whatever type, and don't stop the boot.
    """
    settings.DJANGO_LOGIC = {"LOCKS": "row", "audit": "all", "LOCK": "row", 5: 6}

    conf.validate()

    assert set(conf.unknown_keys()) == {"LOCKS", "audit", 5}


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"LOCK": "rows"}, "settings.DJANGO_LOGIC['LOCK']"),
        ({"STRICT_HOOK_SIGNATURES": "false"}, "settings.DJANGO_LOGIC['STRICT_HOOK_SIGNATURES']"),
        ({"BACKGROUND_EXECUTION": "sync"}, "enable_sync()"),
        ([], "must be a dict"),
    ],
)
def test_boot_refuses_a_wrong_setting(value: Any, complaint: str) -> None:
    """
    Django does not start with a wrong value.
    """
    output, complained = boot(value)

    assert output == ""
    assert complained.startswith("django.core.exceptions.ImproperlyConfigured")
    assert complaint in complained


def test_boot_accepts_sync_after_it_was_enabled() -> None:
    """
    A test settings module may enable and choose inline execution.
    """
    output, _complained = boot({"BACKGROUND_EXECUTION": "sync"}, sync=True)

    assert output == "booted"
