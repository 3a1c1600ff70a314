"""
Test that a wrong setting of events is refused at boot, and a publisher that can't be made is told by its name.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic import conf
from django_logic.outbox import options
from django_logic.outbox.destinations import make_publisher

BACKEND = options.SUBSCRIBERS
WRONG: dict[str, list[Any]] = {
    "OUTBOX_RELAY": ["theirs", None, True],
    "OUTBOX_PUBLISHERS": [
        {},
        None,
        [BACKEND],
        {"": {"BACKEND": BACKEND}},
        {"a,b": {"BACKEND": BACKEND}},
        {"x" * 101: {"BACKEND": BACKEND}},
        {"a ": {"BACKEND": BACKEND}},
        {"a": {"BACKEND": BACKEND}, "A": {"BACKEND": BACKEND}},
        {"a": BACKEND},
        {"a": {}},
        {"a": {"BACKEND": BACKEND, "TOPIC": ["t"]}},
        {"a": {"BACKEND": BACKEND, "OPTIONS": ["t"]}},
        {"a": {"BACKEND": BACKEND, "TOPICS": "order.*"}},
        {"a": {"BACKEND": BACKEND, "TOPICS": [1]}},
        {"a": {"BACKEND": BACKEND, "TOPICS": []}},
    ],
    "OUTBOX_ON_DEAD": ["skip", None, {"*": "ignore"}, {1: "skip"}, {"*": "block", "order.viewed": "skip"}],
    "OUTBOX_MAX_ATTEMPTS": [0, 1.5, "10", True, None],
    "OUTBOX_MAX_PAYLOAD_BYTES": [0, 1.5, "10", True, None],
    "OUTBOX_RETRY_SECONDS": [-1, "5", True, float("nan"), float("inf")],
    "OUTBOX_RETRY_LIMIT_SECONDS": [-1, "5", True, float("nan"), float("inf")],
    "OUTBOX_LEASE_SECONDS": [0, "60", True, float("nan"), float("inf")],
    "OUTBOX_KEEP_DAYS": [-1, "7", True, float("nan"), float("inf"), 36_526],
    "OUTBOX_INBOX_DAYS": [0, -1, "7", True, float("nan"), float("inf"), 36_526],
}


def test_every_key_is_tried() -> None:
    """
    A key that is added is tried here, too.
    """
    assert set(WRONG) == {key for key in conf.DEFAULTS if key.startswith("OUTBOX_")}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values])
def test_wrong_value_is_refused(key: str, value: Any, settings: Any) -> None:
    """
    The refusal names the key, what was found and what fits.
    """
    settings.DJANGO_LOGIC = {key: value}

    with pytest.raises(ImproperlyConfigured) as caught:
        conf.validate()

    message = str(caught.value)
    assert message.startswith(f"settings.DJANGO_LOGIC[{key!r}]: expected ")
    assert message.endswith(f"; found {value!r}.")


@pytest.mark.parametrize("key", WRONG)
def test_default_is_accepted(key: str, settings: Any) -> None:
    """
    What holds without a setting may be written down, too.
    """
    settings.DJANGO_LOGIC = {key: conf.DEFAULTS[key]}

    conf.validate()


@pytest.mark.parametrize(
    ("entry", "name", "told"),
    [
        ({"BACKEND": BACKEND}, "subscriber", r"\['subscriber'\]: there is no such destination.*subscribers"),
        (
            {"BACKEND": "shop.Nowhere"},
            "subscribers",
            r"\['BACKEND'\]: shop.Nowhere can't be loaded .* Correct the path",
        ),
        ({"BACKEND": BACKEND, "OPTIONS": {"colour": 1}}, "subscribers", r"\['OPTIONS'\]: .*takes no arguments"),
    ],
)
def test_publisher_that_can_not_be_made_is_told(entry: dict[str, Any], name: str, told: str, settings: Any) -> None:
    """
    An unknown name, a path that leads nowhere and an option nobody takes name the place in the settings.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"subscribers": entry}}

    with pytest.raises(ImproperlyConfigured, match=told):
        make_publisher(name)
