"""
Run background work: claim rows of some queues and run them, until told to stop.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, connections

from django_logic import conf
from django_logic.background.declared import queues_in_use
from django_logic.background.worker.plan import WorkerPlan
from django_logic.background.worker.supervisor import Supervisor
from django_logic.extension import companion
from django_logic.management.usage import ExplainedCommand, log_to_terminal, number, refuse_unknown_databases
from django_logic.states import nearest

EPILOG = """
A worker claims rows whose queue it serves, runs one attempt at a time in each of its children, and starts callbacks
and next transitions, which are rows too. SIGTERM or SIGINT lets attempts finish within --grace; a second one ends them.

exit status: 0 stopped (attempts that did not finish were put back), 1 wrong usage, 128 + signal when forced.
"""


class Command(ExplainedCommand):
    """
    Run a worker.
    """

    help = "Run background transitions of some queues, until told to stop."
    epilog = EPILOG
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """
        Declare the options; numbers are read as text, so that a wrong one gets one clear line.
        """
        add, count, seconds = parser.add_argument, "N", "SECONDS"
        add("--queues", default="", metavar="NAMES", help="the queues to serve, parted by commas")
        add("--concurrency", default="1", metavar=count, help="how many attempts run at a time, one a process (1)")
        add("--grace", default="30", metavar=seconds, help="how long attempts may finish after SIGTERM (30)")
        add("--drain", "--once", action="store_true", dest="drain", help="stop when nothing is due")
        add("--poll", default="5", metavar=seconds, help="how often to look where no wake-up arrives (5)")
        add("--health-file", metavar="PATH", help="a file that exists while every child works or waits, for probes")
        add(
            "--max-attempts-per-child",
            default="1000",
            metavar=count,
            help="replace a child after so many attempts; 1 gives each a fresh process (1000)",
        )
        add("--max-growth", default="256", metavar="MIB", help="replace a child that grew by so much; 0 = never (256)")
        add("--database", default="default", metavar="ALIAS", help="the database whose rows to run (default)")
        add("--relay", action="store_true", help="deliver events, too, in a process of its own (as dl_relay does)")
        add("--listen-database", metavar="ALIAS", help="a direct connection for wake-ups, past a pooler")
        add("--name", default="", help="how rows and dl_transitions name this worker (host and a number)")
        add("--code-version", default=os.environ.get("DL_CODE_VERSION", ""), help="noted on the rows it runs")

    def handle(self, *arguments: Any, **options: Any) -> None:
        """
        Check the options and run.

        Raises: CommandError, exit status 1, for options that can't work.
        """
        plan = plan_of(options)
        refuse_impossible(plan)
        refuse_companions(plan)
        warn_of_unused(plan)
        log_to_terminal("django-logic.worker")
        queues = ", ".join(plan.queues)
        logging.getLogger("django-logic.worker").info(
            "Worker %s (pid %d): queues %s, %d at a time", plan.label, os.getpid(), queues, plan.concurrency
        )
        status = Supervisor(plan).run()
        if status:
            sys.exit(status)


def queues_of(text: str) -> tuple[str, ...]:
    """
    Read the names of queues.

    Raises: CommandError when there is none.
    """
    queues = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not queues:
        used = ",".join(queues_in_use()) or conf.default_queue()
        raise CommandError(f"--queues names no queue. The transitions of this project use: --queues {used}")
    return queues


def plan_of(options: dict[str, Any]) -> WorkerPlan:
    """
    Read the options.
    """
    refuse_unknown_databases(options, "database", "listen_database")
    return WorkerPlan(
        queues=queues_of(options["queues"]),
        concurrency=number(options, "concurrency", 1, is_whole=True),
        alias=options["database"],
        listen_alias=options["listen_database"],
        poll=number(options, "poll", 0.01),
        grace=number(options, "grace", 0),
        is_draining=options["drain"],
        health_file=options["health_file"],
        max_attempts_per_child=number(options, "max_attempts_per_child", 1, is_whole=True),
        max_growth=number(options, "max_growth", 0, is_whole=True),
        code_version=options["code_version"],
        companions=("relay",) if options["relay"] else (),
        name=options["name"],
    )


def refuse_companions(plan: WorkerPlan) -> None:
    """
    Refuse processes beside the children that could not run.
    """
    if plan.companions and plan.is_draining:
        raise CommandError("--relay goes on until it is told to stop. For what is due now use dl_relay --drain.")
    for name in plan.companions:
        try:
            companion(name).check()
        except LookupError:
            raise CommandError(f"--{name} needs 'django_logic.outbox' in INSTALLED_APPS.") from None
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error


def refuse_impossible(plan: WorkerPlan) -> None:
    """
    Refuse what could not work: sync mode, several children on SQLite, a database without the table.
    """
    if conf.background_execution() != conf.EXECUTION_PULL:
        raise CommandError("DJANGO_LOGIC['BACKGROUND_EXECUTION'] is 'sync': work runs in the calls, a worker has none.")
    if plan.health_file is not None:
        try:
            Path(plan.health_file).touch()
            Path(plan.health_file).unlink()
        except OSError as error:
            raise CommandError(f"--health-file {plan.health_file} can't be written: {error.strerror}.") from error
    connection = connections[plan.alias]
    if connection.vendor == "sqlite" and not settings.DEBUG:
        raise CommandError("SQLite has no row locks: a worker on it runs with DEBUG=True only. Use PostgreSQL.")
    if connection.vendor == "sqlite" and plan.concurrency > 1:
        raise CommandError(f"SQLite takes one child; found --concurrency {plan.concurrency}.")
    try:
        tables = connection.introspection.table_names()
    except DatabaseError as error:
        raise CommandError(f"The database {plan.alias!r} can't be reached: {str(error).strip()}") from error
    if "django_logic_background_transitionmessage" not in tables:
        raise CommandError(f"The database {plan.alias!r} has no table of background work. Run manage.py migrate.")


def warn_of_unused(plan: WorkerPlan) -> None:
    """
    Say which of the queues no transition uses.
    """
    used = queues_in_use()
    for queue in plan.queues:
        if queue not in used:
            logging.getLogger("django-logic.worker").warning(
                "No bound transition uses the queue %r.%s", queue, nearest(queue, list(used))
            )
