"""
Deliver events, until told to stop; or look after those that are not delivered.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from django_logic.management.usage import ExplainedCommand, log_to_terminal, number, refuse_unknown_databases
from django_logic.outbox import destinations, metrics, relay
from django_logic.outbox import options as settings_of
from django_logic.outbox.relay.running import Relay, RelayPlan
from django_logic.states import nearest

EPILOG = """
A relay delivers at least once and in order per object; any number may run. A destination that takes nothing pauses
alone and costs no message an attempt. SIGTERM or SIGINT lets it finish what it is publishing within --grace, and the
rest goes back; a second one ends it.

exit status: 0 stopped, drained, or nothing is late; 1 wrong usage, or with --check something is late; 128 + signal when
forced.
"""


class Command(ExplainedCommand):
    """
    Run a relay.
    """

    help = "Deliver events to subscribers and brokers, until told to stop."
    epilog = EPILOG
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """
        Declare the options; numbers are read as text, so that a wrong one gets one clear line.
        """
        add, seconds = parser.add_argument, "SECONDS"
        add("--destinations", default="", metavar="NAMES", help="only these, parted by commas (all of the settings)")
        add("--drain", "--once", action="store_true", dest="drain", help="deliver what is due, then stop")
        add("--check", action="store_true", help="exit with 1 when the oldest pending event is older than --older-than")
        add("--older-than", default="300", metavar=seconds, help="what --check calls late (300)")
        add("--replay", action="store_true", help="put dead events back, those of --topic, --destinations and --key")
        add("--purge", action="store_true", help="delete events older than OUTBOX_KEEP_DAYS that nobody waits for")
        add("--topic", default="", help="for --replay: only this topic")
        add("--key", default="", help="for --replay: only this object")
        add("--json", action="store_true", help="write figures of --check as JSON")
        add("--poll", default="1", metavar=seconds, help="how often to look where no wake-up arrives (1)")
        add("--grace", default="30", metavar=seconds, help="how long publishing may finish after SIGTERM (30)")
        add("--database", default="default", metavar="ALIAS", help="the database whose events to deliver (default)")
        add("--listen-database", metavar="ALIAS", help="a direct connection for wake-ups, past a pooler")
        add("--name", default="", help="how rows name this relay (host and process)")

    def handle(self, *arguments: Any, **options: Any) -> None:
        """
        Check the options and do what they ask for.

        Raises: CommandError, exit status 1, for options that can't work.
        """
        if sum(bool(options[name]) for name in ("drain", "check", "replay", "purge")) > 1:
            raise CommandError("--drain, --check, --replay and --purge are different tasks. Choose one.")
        for name, task in (("topic", "replay"), ("key", "replay"), ("json", "check")):
            if options[name] and not options[task]:
                raise CommandError(f"--{name} is a part of --{task}. Add that, or leave it out.")
        plan = plan_of(options)
        if options["check"]:
            # Without a choice also those that are no longer in the settings.
            chosen = plan.destinations if options["destinations"] else ()
            self.check_age(plan, chosen, number(options, "older_than", 0), as_json=options["json"])
        elif options["replay"]:
            self.replay(plan, options)
        elif options["purge"]:
            self.stdout.write(f"{relay.purge(plan.alias)} rows deleted.")
        elif not settings_of.has_own_relay():
            raise CommandError("DJANGO_LOGIC['OUTBOX_RELAY'] is 'none': somebody else delivers events. Use 'own'.")
        elif options["drain"]:
            self.drain(plan)
        else:
            run(plan)

    def drain(self, plan: RelayPlan) -> None:
        """
        Deliver what is due.
        """
        try:
            count = relay.drain(plan.alias, only=plan.destinations)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{count} event{'' if count == 1 else 's'} delivered.")

    def check_age(self, plan: RelayPlan, chosen: tuple[str, ...], limit: float, *, as_json: bool) -> None:
        """
        Say what waits; exit with 1 when something has waited for too long.
        """
        found = metrics.figures(plan.alias)
        figures = [entry for entry in found if not chosen or entry.destination in chosen]
        oldest = max((entry.oldest_seconds for entry in figures), default=0.0)
        if as_json:
            self.stdout.write(json.dumps([entry.as_dict() for entry in figures]))
        else:
            for entry in figures:
                self.stdout.write(
                    f"{entry.destination}: {entry.pending} pending, the oldest for {entry.oldest_seconds:.0f} s,"
                    f" {entry.dead} dead"
                )
        if oldest > limit:
            self.stderr.write(f"The oldest pending event has waited for {oldest:.0f} s, longer than {limit:g} s.")
            sys.exit(1)

    def replay(self, plan: RelayPlan, options: dict[str, Any]) -> None:
        """
        Put dead events back.
        """
        chosen = plan.destinations if options["destinations"] else ("",)
        count = sum(
            relay.replay(destination=name, topic=options["topic"], key=options["key"], using=plan.alias)
            for name in chosen
        )
        self.stdout.write(f"{count} dead event{'' if count == 1 else 's'} put back.")


def run(plan: RelayPlan) -> None:
    """
    Run a relay; exit with its status.
    """
    log_to_terminal("django-logic.relay")
    logger = logging.getLogger("django-logic.relay")
    try:
        running = Relay(plan)
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from error
    logger.info("Relay %s (pid %d): %s", plan.label, os.getpid(), ", ".join(plan.destinations))
    status = running.run()
    if status:
        logging.shutdown()
        os._exit(status)  # a publisher that hangs must not hold up the end


def plan_of(options: dict[str, Any]) -> RelayPlan:
    """
    Read the options.
    """
    refuse_unknown_databases(options, "database", "listen_database")
    known = destinations.names()
    wanted = tuple(dict.fromkeys(name.strip() for name in options["destinations"].split(",") if name.strip()))
    for name in wanted:
        if name not in known:
            raise CommandError(
                f"--destinations: OUTBOX_PUBLISHERS has no {name!r}; it has {', '.join(known)}.{nearest(name, known)}"
            )
    return RelayPlan(
        destinations=wanted or tuple(known),
        alias=options["database"],
        listen_alias=options["listen_database"],
        poll=number(options, "poll", 0.01),
        grace=number(options, "grace", 0),
        name=options["name"],
    )
