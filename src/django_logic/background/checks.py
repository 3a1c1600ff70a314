"""
System checks of background work: what can be wrong between processes, databases and the table of rows.

What is seen only where this app is *not* installed is checked by `django_logic.checks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core import checks as django_checks
from django.core import mail
from django.db import connections, router

from django_logic import conf
from django_logic.background.declared import queues_in_use
from django_logic.background.models import TransitionMessage
from django_logic.binding import ModelProcessBinding, ProcessManager
from django_logic.tree import dotted, tree_of

__all__ = ["queues_in_use", "register"]

TAG = "django_logic"


def register() -> None:
    """
    Register every check under the tag ``django_logic``; the list of queues is shown by ``check --deploy``.
    """
    django_checks.register(check_tables, TAG)
    django_checks.register(check_databases, TAG)
    django_checks.register(list_queues, TAG, deploy=True)


def background_bindings() -> Iterator[ModelProcessBinding]:
    """
    Yield the bindings whose process declares background work.
    """
    return (binding for binding in ProcessManager.bindings if tree_of(binding.process_class).has_background)


def check_tables(**_keywords: Any) -> list[django_checks.CheckMessage]:
    """
    Report models whose database has no table for their rows: both have to change in one transaction.
    """
    found: list[django_checks.CheckMessage] = []
    for binding in background_bindings():
        alias = router.db_for_write(binding.model)
        where = f"{dotted(binding.process_class)}: background rows of {binding.model._meta.label} are written to"
        if not router.allow_migrate_model(alias, TransitionMessage):
            found.append(
                django_checks.Error(
                    f"{where} {alias!r}, where the model is, and DATABASE_ROUTERS keep their table from there.",
                    hint=f"Let allow_migrate() answer True for django_logic_background on {alias!r}, and migrate it.",
                    obj=binding.model,
                    id="django_logic.E008",
                )
            )
        elif router.db_for_write(TransitionMessage) != alias:
            found.append(
                django_checks.Warning(
                    f"{where} {alias!r}, where the model is, and DATABASE_ROUTERS send who looks for them to"
                    f" {router.db_for_write(TransitionMessage)!r}.",
                    hint=f"Let workers and commands use --database {alias}; the admin shows what the router says.",
                    obj=binding.model,
                    id="django_logic.W008",
                )
            )
    return found


def check_databases(**_keywords: Any) -> list[django_checks.CheckMessage]:
    """
    Report databases without row locks, on which workers can't share the work; fit for a developer's machine only.
    """
    if conf.background_execution() != conf.EXECUTION_PULL:
        return []
    found: dict[str, ModelProcessBinding] = {}
    for binding in background_bindings():
        found.setdefault(router.db_for_write(binding.model), binding)
    # Django's test runners turn DEBUG off; the mailbox is what it documents of the environment they set up.
    is_mild = settings.DEBUG or hasattr(mail, "outbox")
    kind: Any = django_checks.Warning if is_mild else django_checks.Error
    return [
        kind(
            f"{dotted(binding.process_class)}: background work of {binding.model._meta.label} is on {alias!r}, and"
            f" {connections[alias].vendor} has no row locks.",
            hint=(
                "Use PostgreSQL (or MySQL 8, MariaDB 10.6) where several processes work."
                if not is_mild
                else "One worker with one child runs it while DEBUG is True; with DEBUG=False this is an error."
            ),
            obj=binding.model,
            id="django_logic.W009" if is_mild else "django_logic.E009",
        )
        for alias, binding in sorted(found.items())
        if not connections[alias].features.has_select_for_update
    ]


def list_queues(**_keywords: Any) -> list[django_checks.CheckMessage]:
    """
    List the queues that bound transitions use, which is what workers have to serve between them.
    """
    used = queues_in_use()
    if not used:
        return []
    listed = "".join(f"\n    {queue}: {', '.join(places)}" for queue, places in used.items())
    return [
        django_checks.Info(
            f"Background transitions use {len(used)} queue{'s' if len(used) > 1 else ''}:{listed}",
            hint=f"Serve them: manage.py dl_worker --queues {','.join(used)!r}",
            id="django_logic.I001",
        )
    ]
