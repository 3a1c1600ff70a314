"""
Prove what ``manage.py check`` finds between events, databases, publishers and subscribers.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core import checks as django_checks

from django_logic import Action, ProcessManager, Transition
from django_logic.background import BackgroundTransition
from django_logic.outbox import checks, payload, publishers, subscribe
from django_logic.outbox.models import OutboxDelivery
from django_logic.outbox.subscribers import forget
from tests.app.models import Ticket
from tests.flows import Bind, declare

ROOT = Path(__file__).parents[2]
#: Modules of the publishers' package that publish nothing.
NO_PUBLISHERS = {"__init__", "answers", "egress", "local", "options"}


@pytest.fixture(autouse=True)
def sandbox() -> Iterator[None]:
    """
    Forget what other apps have bound.
    """
    before = list(ProcessManager.bindings)
    ProcessManager.bindings[:] = []
    yield
    ProcessManager.bindings[:] = before


@pytest.fixture
def told() -> Iterator[Callable[..., None]]:
    """
    Give what subscribes a function to topics for the length of one test.
    """
    made: list[Any] = []

    def tell(*topics: str) -> None:
        def listener(event: Any) -> None: ...

        listener.__qualname__ = f"listener{len(made)}"
        made.append(subscribe(*topics)(listener))

    yield tell
    for listener in made:
        forget(listener)


def router_of(**answers: Any) -> Any:
    """
    Make a router from its methods, each given as a function of the model or of the app's label.
    """
    return type("Router", (), {name: staticmethod(answer) for name, answer in answers.items()})()


def keeping_away(*labels: str, models: tuple[str, ...] = ()) -> Any:
    """
    Make a router that keeps the tables of apps, or some of them, from the database where the models are.
    """

    def allow(db: str, app_label: str, model_name: str | None = None, **hints: Any) -> bool | None:
        is_meant = app_label in labels and (not models or model_name in models)
        return db == "other" if is_meant else None

    return router_of(allow_migrate=allow)


def only(messages: list[django_checks.CheckMessage]) -> django_checks.CheckMessage:
    """
    Return the one message.
    """
    (found,) = messages
    return found


def opened(**keywords: Any) -> Transition:
    """
    Declare a move.
    """
    return Transition("open", ["new"], "opened", **keywords)


def test_plain_project_has_nothing_to_hear(bind: Bind, told: Callable[..., None]) -> None:
    """
    Without routers, with the publisher of the defaults and with topics that exist, every check is content.
    """
    bind(declare(opened()))
    told("ticket.opened", "*")

    found = [checks.check_databases(), checks.check_readers(), checks.check_publishers(), checks.check_topics()]

    assert found == [[], [], [], []]


@pytest.mark.parametrize(
    ("labels", "models", "named"),
    [
        (("django_logic_outbox",), (), "django_logic_outbox.OutboxMessage, django_logic_outbox.OutboxDelivery from"),
        (("django_logic_outbox",), ("outboxdelivery",), "keep django_logic_outbox.OutboxDelivery from"),
        (("django_logic",), (), "keep django_logic.StatusChange from"),
    ],
)
def test_state_history_and_events_on_different_databases_are_an_error(
    bind: Bind, settings: Any, labels: tuple[str, ...], models: tuple[str, ...], named: str
) -> None:
    """
    A router that parts what changes in one transaction would fail every move, so it is an error with its mend.
    """
    settings.DATABASE_ROUTERS = [keeping_away(*labels, models=models)]
    process = bind(declare(opened()))

    found = only(checks.check_databases())

    assert (found.id, found.obj, found.level) == ("django_logic.E011", Ticket, django_checks.ERROR)
    assert f"{process.__module__}.{process.__name__}: moves of app.Ticket are written to 'default'" in found.msg
    assert named in found.msg
    assert f"Let allow_migrate() answer True for {labels[0]} on 'default'" in str(found.hint)
    assert checks.check_readers() == []


def test_model_that_is_sent_away_from_its_events_is_an_error(bind: Bind, settings: Any) -> None:
    """
    It is the same error when the model goes to another database than the tables of events.
    """
    settings.DATABASE_ROUTERS = [
        router_of(
            db_for_write=lambda model, **hints: "other" if model is Ticket else None,
            allow_migrate=lambda db, app_label, **hints: db == "default" if "outbox" in app_label else None,
        )
    ]
    bind(declare(opened()))

    assert "written to 'other'" in only(checks.check_databases()).msg


def test_routers_matter_to_processes_with_events_only(bind: Bind, settings: Any) -> None:
    """
    A process that switches its events off needs no table for them.
    """
    settings.DATABASE_ROUTERS = [keeping_away("django_logic_outbox")]
    bind(declare(opened(event=False), Action("ping", ["opened"])))

    assert checks.check_databases() == []


def test_deliveries_need_no_table_without_a_relay_of_ours(bind: Bind, settings: Any) -> None:
    """
    Where somebody else delivers, no delivery is written, and publishers are nobody's business.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_RELAY": "none", "OUTBOX_PUBLISHERS": {"x": {"BACKEND": "no.such.Thing"}}}
    settings.DATABASE_ROUTERS = [keeping_away("django_logic_outbox", models=("outboxdelivery",))]
    bind(declare(opened()))

    assert checks.check_databases() + checks.check_readers() + checks.check_publishers() == []


@pytest.mark.parametrize("method", ["db_for_read", "db_for_write"])
def test_deliveries_that_a_router_looks_for_elsewhere_are_a_warning(bind: Bind, settings: Any, method: str) -> None:
    """
    Deliveries are written beside their object, so a router that sends others elsewhere hides them.
    """
    settings.DATABASE_ROUTERS = [
        router_of(**{method: lambda model, **hints: "other" if model is OutboxDelivery else None})
    ]
    bind(declare(opened()))

    found = only(checks.check_readers())

    assert (found.id, found.obj, found.level) == ("django_logic.W010", Ticket, django_checks.WARNING)
    assert "send who looks for them to 'other'" in found.msg
    assert "--database default" in str(found.hint)


def test_copies_that_everything_is_read_from_are_no_warning(bind: Bind, settings: Any) -> None:
    """
    A router that reads all models from a copy hides nothing.
    """
    settings.DATABASE_ROUTERS = [router_of(db_for_read=lambda model, **hints: "other")]
    bind(declare(opened()))

    assert checks.check_readers() == []


def test_copy_that_says_so_is_no_warning(bind: Bind, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A database whose ``TEST`` names what it mirrors is a copy, also for deliveries alone.
    """
    settings.DATABASE_ROUTERS = [
        router_of(db_for_read=lambda model, **hints: "other" if model is OutboxDelivery else None)
    ]
    monkeypatch.setitem(settings.DATABASES["other"], "TEST", {"MIRROR": "default"})
    bind(declare(opened()))

    assert checks.check_readers() == []


@pytest.mark.parametrize("path", ["shop.nowhere.Fax", "django_logic.outbox.publishers.local.Fax", "Fax"])
def test_publisher_that_does_not_exist_is_an_error(settings: Any, path: str) -> None:
    """
    A path that leads nowhere is a slip, found before a relay starts.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"fax": {"BACKEND": path}}}

    found = only(checks.check_publishers())

    assert (found.id, found.level, found.hint) == ("django_logic.E012", django_checks.ERROR, "Correct the path.")
    assert f"['OUTBOX_PUBLISHERS']['fax']: {path} can't be loaded" in found.msg


def test_publisher_without_its_library_is_a_warning_with_the_extra(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Only relays need the library, so its absence elsewhere is no error; the hint says what to install.
    """
    monkeypatch.delitem(sys.modules, "django_logic.outbox.publishers.webhook", raising=False)
    monkeypatch.delattr(publishers, "webhook", raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)
    settings.DJANGO_LOGIC = {
        "OUTBOX_PUBLISHERS": {"hook": {"BACKEND": "django_logic.outbox.publishers.webhook.Webhook"}}
    }

    found = only(checks.check_publishers())

    assert (found.id, found.level) == ("django_logic.W011", django_checks.WARNING)
    assert found.hint == "Install it where relays run: pip install 'django-logic[webhooks]'."


def test_library_that_is_too_old_is_a_warning(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A library without the name that is imported from it is as good as none.
    """
    monkeypatch.delitem(sys.modules, "django_logic.outbox.publishers.webhook", raising=False)
    monkeypatch.delattr(publishers, "webhook", raising=False)
    monkeypatch.setitem(sys.modules, "cloudevents.core.bindings.http", ModuleType("cloudevents.core.bindings.http"))
    settings.DJANGO_LOGIC = {
        "OUTBOX_PUBLISHERS": {"hook": {"BACKEND": "django_logic.outbox.publishers.webhook.Webhook"}}
    }

    assert only(checks.check_publishers()).id == "django_logic.W011"


def test_every_publisher_of_ours_has_the_extra_that_is_named() -> None:
    """
    What the hint says to install exists among the extras.
    """
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    folder = ROOT / "src" / "django_logic" / "outbox" / "publishers"
    modules = {path.stem for path in folder.glob("*.py")} - NO_PUBLISHERS

    named = {checks.extra_of(f"{checks.OURS}{module}.Any") for module in modules}

    assert len(named) == len(modules) > 2
    assert named <= {f"pip install 'django-logic[{extra}]'" for extra in extras}
    assert checks.extra_of("shop.publishers.Fax") == ""


def test_topic_that_no_process_emits_is_a_warning_with_near_names(bind: Bind, told: Callable[..., None]) -> None:
    """
    A slip in a topic of a bound model is told with the topics it may have meant.
    """
    bind(declare(opened()))
    told("ticket.opend", "ticket.opened")

    found = only(checks.check_topics())

    assert (found.id, found.level) == ("django_logic.W012", django_checks.WARNING)
    assert f"{__name__}.listener0 subscribes to 'ticket.opend', which no bound process emits." in found.msg
    assert "Did you mean 'ticket.opened'?" in found.msg
    assert "silence django_logic.W012" in str(found.hint)


def test_patterns_and_topics_of_others_are_no_slips(bind: Bind, told: Callable[..., None]) -> None:
    """
    What has a wildcard, or belongs to no bound model, may be meant for anything.
    """
    bind(declare(opened()))
    told("ticket.open*", "ticket.[ab]", "ticket.opene?", "parcel.sent", "everything")

    assert checks.check_topics() == []


def test_every_topic_that_can_be_emitted_is_known(bind: Bind, told: Callable[..., None]) -> None:
    """
    Busy and failed states, renamed events, events of actions and of functions count; those switched off do not.
    """

    @payload(topic="ticket.printed")
    def printed(ticket: Ticket, **_keywords: Any) -> dict[str, Any]:
        return {}

    bind(
        declare(
            opened(failed_state="jammed"),
            BackgroundTransition("print", ["opened"], "done", in_progress_state="printing", event=printed),
            Transition("bind", ["done"], "bound", event="ticket.in_cover"),
            Action("ping", ["bound"], event=True),
            Transition("shut", ["bound"], "shut", event=False),
        )
    )
    told("ticket.jammed", "ticket.printing", "ticket.printed", "ticket.in_cover", "ticket.ping", "ticket.shut")

    assert "'ticket.shut'" in only(checks.check_topics()).msg


def test_checks_run_under_the_tag_of_the_library(bind: Bind, settings: Any) -> None:
    """
    ``manage.py check --tag django_logic`` runs them.
    """
    settings.DATABASE_ROUTERS = [keeping_away("django_logic_outbox")]
    bind(declare(opened()))

    assert "django_logic.E011" in [found.id for found in django_checks.run_checks(tags=["django_logic"])]
