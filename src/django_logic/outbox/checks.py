"""
System checks of events: what can be wrong between processes, databases, publishers and subscribers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core import checks as django_checks
from django.db import router
from django.utils.module_loading import import_string

from django_logic.binding import ModelProcessBinding, ProcessManager
from django_logic.models import StatusChange
from django_logic.outbox import options
from django_logic.outbox.catalogue.emissions import emissions_of
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from django_logic.outbox.subscribers import Subscriber, subscribers
from django_logic.states import nearest
from django_logic.subject import Column, column_of
from django_logic.tree import dotted, tree_of

__all__ = ["check_databases", "check_publishers", "check_readers", "check_topics", "extra_of", "register"]

TAG = "django_logic"
#: Where our own publishers are.
OURS = "django_logic.outbox.publishers."


def register() -> None:
    """
    Register every check under the tag ``django_logic``.
    """
    for check in (check_databases, check_readers, check_publishers, check_topics):
        django_checks.register(check, TAG)


def column_of_binding(binding: ModelProcessBinding) -> Column:
    """
    Return the column a binding moves.
    """
    return column_of(binding.model, binding.state_field, binding.process_class.process_name)


def topics_of(binding: ModelProcessBinding) -> Iterator[str]:
    """
    Yield the topics that a bound process can emit.
    """
    column = column_of_binding(binding)
    for candidate in tree_of(binding.process_class).candidates:
        yield from (emission.told.topic for emission in emissions_of(column, candidate))


def telling() -> Iterator[tuple[ModelProcessBinding, str]]:
    """
    Yield the bindings that emit events, with the database their moves are written to.
    """
    for binding in ProcessManager.bindings:
        if any(topics_of(binding)):
            yield binding, router.db_for_write(binding.model)


def check_databases(**_keywords: Any) -> list[django_checks.CheckMessage]:
    """
    Report models whose database has no tables for their history and events: all change in one transaction.
    """
    tables = [StatusChange, OutboxMessage, *([OutboxDelivery] if options.has_own_relay() else [])]
    found: list[django_checks.CheckMessage] = []
    for binding, alias in telling():
        away = [table for table in tables if not router.allow_migrate_model(alias, table)]
        if away:
            names = ", ".join(table._meta.label for table in away)
            labels = " and ".join(dict.fromkeys(table._meta.app_label for table in away))
            found.append(
                django_checks.Error(
                    f"{dotted(binding.process_class)}: moves of {binding.model._meta.label} are written to {alias!r}"
                    f" together with their history and events, and DATABASE_ROUTERS keep {names} from there.",
                    hint=f"Let allow_migrate() answer True for {labels} on {alias!r}, and migrate it.",
                    obj=binding.model,
                    id="django_logic.E011",
                )
            )
    return found


def check_readers(**_keywords: Any) -> list[django_checks.CheckMessage]:
    """
    Warn of routers that look for deliveries elsewhere than moves write them.
    """
    if not options.has_own_relay():
        return []
    found: list[django_checks.CheckMessage] = []
    for binding, alias in telling():
        elsewhere = reader_elsewhere(binding, alias)
        if elsewhere and router.allow_migrate_model(alias, OutboxDelivery):
            found.append(
                django_checks.Warning(
                    f"{dotted(binding.process_class)}: events of {binding.model._meta.label} are written to"
                    f" {alias!r}, where the model is, and DATABASE_ROUTERS send who looks for them to {elsewhere!r}.",
                    hint=f"Let dl_relay use --database {alias}; the admin shows what the router says.",
                    obj=binding.model,
                    id="django_logic.W010",
                )
            )
    return found


def reader_elsewhere(binding: ModelProcessBinding, alias: str) -> str:
    """
    Return the database a router sends readers or writers of deliveries to, "" where it is the model's or a copy of it.
    """
    if (written := router.db_for_write(OutboxDelivery)) != alias:
        return written
    read = router.db_for_read(OutboxDelivery)
    copied = settings.DATABASES[read].get("TEST", {}).get("MIRROR")
    return "" if alias in (read, copied) or read == router.db_for_read(binding.model) else read


def check_publishers(**_keywords: Any) -> list[django_checks.CheckMessage]:
    """
    Report publishers that a relay could not load; a library that is missing matters where relays run only.
    """
    if not options.has_own_relay():
        return []
    found: list[django_checks.CheckMessage] = []
    for name, entry in options.publishers().items():
        path = entry["BACKEND"]
        where = f"settings.DJANGO_LOGIC['OUTBOX_PUBLISHERS'][{name!r}]: {path} can't be loaded"
        try:
            import_string(path)
        except ImportError as error:
            if error.name is None or f"{path}.".startswith(f"{error.name}."):
                found.append(
                    django_checks.Error(f"{where}: {error}.", hint="Correct the path.", id="django_logic.E012")
                )
            else:
                found.append(
                    django_checks.Warning(
                        f"{where}: its library is missing or too old ({error}).",
                        hint=f"Install it where relays run: {extra_of(path) or error.name}.",
                        id="django_logic.W011",
                    )
                )
    return found


def extra_of(path: str) -> str:
    """
    Return what to install for one of our own publishers, "" for others.
    """
    if not path.startswith(OURS):
        return ""
    module = path.removeprefix(OURS).partition(".")[0]
    extra = "webhooks" if module == "webhook" else module.replace("_", "-")
    return f"pip install 'django-logic[{extra}]'"


def check_topics(**_keywords: Any) -> list[django_checks.CheckMessage]:
    """
    Warn of subscribers that wait for an event of a bound model which no process of it emits: mostly slips.
    """
    known = {topic for binding in ProcessManager.bindings for topic in topics_of(binding)}
    models = {column_of_binding(binding).model_name for binding in ProcessManager.bindings}
    return [
        slip(subscriber, topic, known)
        for subscriber in subscribers()
        for topic in subscriber.topics
        if topic not in known and topic.partition(".")[0] in models and not set("*?[") & set(topic)
    ]


def slip(subscriber: Subscriber, topic: str, known: set[str]) -> django_checks.CheckMessage:
    """
    Warn of one topic that nobody emits.
    """
    return django_checks.Warning(
        f"{subscriber.name} subscribes to {topic!r}, which no bound process emits.{nearest(topic, sorted(known))}",
        hint="Correct the topic. Where your own code writes such events by hand, silence django_logic.W012.",
        id="django_logic.W012",
    )
