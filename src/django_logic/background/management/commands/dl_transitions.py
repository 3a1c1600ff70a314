"""
The command `dl_transitions`: say why each open row does not move, and do what an operator can do about it.
"""

from __future__ import annotations

import json
import time
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.utils import DatabaseError

from django_logic.background import cancel, mending
from django_logic.background.declared import queues_in_use
from django_logic.background.explain import Code, Explanation, Tally, explain, tally
from django_logic.background.explain.texts import span_of
from django_logic.background.models import TransitionMessage
from django_logic.exceptions import TransitionNotAllowed
from django_logic.management.usage import ExplainedCommand
from django_logic.states import nearest

LIMIT = 100
#: Seconds between two looks of --watch.
PAUSE = 2.0
CLEAR = "\x1b[H\x1b[2J"
LARGEST_KEY = 2**63 - 1

EPILOG = """
reasons, one for each row:
  running              an attempt runs: by which worker, in which session, since when
  held_by_session      somebody else holds the row's lock
  lease_live_until     claimed moments ago, or its attempt prepares, or died there
  spent_all_attempts   no attempt is left
  unknown_transition   the code of this process does not know what the row asks for
  waiting_behind       other rows come first
  retry_pause_until    the last attempt failed and the pause is not over
  scheduled_for        it is not due yet
  no_worker_for_queue  it is due, and no worker of its queue was seen within 30 seconds
  claimable_now        the next claim takes it

Every line ends with the next command to type. held_snapshot beside the first row names a session whose open
transaction keeps vacuum from its work.

examples:
  manage.py dl_transitions --queues "django_logic.fast, django_logic.slow"
  manage.py dl_transitions --json | jq -r '.[] | select(.code == "spent_all_attempts") | .next_command'
  manage.py dl_transitions --send 1234        end its pause; a worker runs it next
  manage.py dl_transitions --retry 1234       fresh attempts for a spent or failed row
  manage.py dl_transitions --cancel 1234      end it through the failure path

exit codes: 0 listed or done, 1 the row or an argument is wrong
"""


class Command(ExplainedCommand):
    """
    List the open rows of background work with the reason why each is where it is.
    """

    help = "List open background transitions, say why each is not moving, and what to type next. Runs no hook."
    epilog = EPILOG
    # What is not moving must be seen while a check complains.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """
        Take what to list, or what to do to one row.
        """
        add = parser.add_argument
        add("--queues", metavar="NAMES", help="only these queues, parted by commas")
        add("--limit", default=str(LIMIT), metavar="N", help=f"list at most N rows ({LIMIT}); 0: all")
        add("--json", action="store_true", help="write a JSON list of objects")
        add("--watch", action="store_true", help=f"list again every {PAUSE:g} seconds until Ctrl-C")
        add("--send", metavar="PK", help="make this row due now and wake the workers")
        add("--retry", metavar="PK", help="give this spent or failed row fresh attempts")
        add("--cancel", metavar="PK", help="end this row through its failure path")
        add("--reason", default="", metavar="TEXT", help="with --cancel: recorded, and told to the failure callbacks")
        add("--database", default=DEFAULT_DB_ALIAS, metavar="ALIAS", help=f"the database to read ({DEFAULT_DB_ALIAS})")

    def handle(self, *args: Any, **options: Any) -> None:
        """
        List, or do.

        Raises: CommandError, exit code 1.
        """
        alias = options["database"]
        if alias not in connections:
            known = ", ".join(map(repr, connections))
            raise CommandError(f"No database is called {alias!r}; found {known}.{nearest(alias, connections)}")
        asked = [name for name in ("send", "retry", "cancel") if options[name] is not None]
        if len(asked) > 1:
            raise CommandError(f"{' and '.join(f'--{name}' for name in asked)} can't be had at once. Choose one.")
        try:
            if asked:
                self.mend(asked[0], whole_number(f"--{asked[0]}", options[asked[0]], 1), alias, options["reason"])
            else:
                self.show(options, alias)
        except DatabaseError as error:
            reason = str(error).strip().partition("\n")[0]
            raise CommandError(
                f"Background work on {alias!r} can't be read: {reason}. Is it migrated? Run manage.py migrate"
                f" --database={alias}."
            ) from error

    def mend(self, what: str, pk: int, alias: str, reason: str) -> None:
        """
        Do what is asked to one row, and say how it stands then.
        """
        try:
            if what == "cancel":
                cancel.cancel_message(pk, using=alias, actor="dl_transitions", reason=reason)
            elif what == "send":
                mending.send(pk, using=alias)
            else:
                pk = mending.retry(pk, using=alias)
        except (mending.CannotMend, TransitionNotAllowed) as refusal:
            raise CommandError(" ".join(str(refusal).split())) from refusal
        done = {"send": "is due now", "retry": "has fresh attempts", "cancel": "is asked to stop"}[what]
        found = explain(pks=[pk], using=alias)
        if found:
            self.stdout.write(f"Row {pk} {done}.\n{line(found[0])}")
        else:
            message = TransitionMessage.objects.using(alias).filter(pk=pk).only("outcome").first()
            self.stdout.write(f"Row {pk} has ended: {message.outcome if message is not None else 'it is gone'}.")

    def show(self, options: dict[str, Any], alias: str) -> None:
        """
        List once, or again and again.
        """
        queues, limit = names(options["queues"]), whole_number("--limit", options["limit"], 0)
        write = self.write_json if options["json"] else self.write_text
        if not options["watch"]:
            write(queues, limit, alias)
            return
        try:
            while True:
                if self.stdout.isatty():
                    self.stdout.write(CLEAR, ending="")
                write(queues, limit, alias)
                self.stdout.flush()
                time.sleep(PAUSE)
        except KeyboardInterrupt:
            return

    def write_text(self, queues: list[str] | None, limit: int, alias: str) -> None:
        """
        Write a line for each row, then how many there are of each reason.
        """
        explained = explain(queues, alias, limit=limit or None)
        counts = tally(queues, alias)
        total = sum(entry.count for entry in counts)
        for explanation in explained:
            self.stdout.write(line(explanation))
            if explanation.note:
                self.stdout.write(explanation.note)
        if total > len(explained):
            self.stdout.write(f"and {total - len(explained):,} more; --limit 0 lists all")
        if explained:
            self.stdout.write("")
        for row in table(counts):
            self.stdout.write(row)
        self.stdout.write(f"{total:,} open row{'' if total == 1 else 's'}.")
        self.warn_of_unused(queues, counts)

    def write_json(self, queues: list[str] | None, limit: int, alias: str) -> None:
        """
        Write one list, an object for each row.
        """
        explained = explain(queues, alias, limit=limit or None)
        self.stdout.write(json.dumps([dict(entry.as_data()) for entry in explained], indent=2, ensure_ascii=False))
        if limit and len(explained) == limit:
            self.stderr.write(f"Listed the first {limit:,} rows; --limit 0 lists all.", style_func=str)
        self.warn_of_unused(queues, [])

    def warn_of_unused(self, queues: list[str] | None, counts: list[Tally]) -> None:
        """
        Say which of the queues that were asked for no transition uses.
        """
        used, waiting = queues_in_use(), {entry.queue for entry in counts}
        for queue in queues or ():
            if queue not in used and queue not in waiting:
                self.stderr.write(
                    f"No bound transition uses the queue {queue!r}.{nearest(queue, used)}", style_func=str
                )


def names(text: str | None) -> list[str] | None:
    """
    Read queue names, blanks around them stripped; None where none are asked for.
    """
    if text is None:
        return None
    found = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not found:
        raise CommandError("--queues names no queue. Leave it out for all, or part names by commas.")
    return found


def whole_number(option: str, text: Any, least: int) -> int:
    """
    Read a whole number that a key column holds.
    """
    try:
        number = int(str(text))
    except ValueError:
        number = -1
    if not least <= number <= LARGEST_KEY:
        raise CommandError(f"{option} takes a whole number from {least}; found {text!r}.")
    return number


def line(entry: Explanation) -> str:
    """
    Write a row, its reason and the next command on one line.
    """
    facts = (
        str(entry.id),
        f"{entry.model}#{entry.instance_id}",
        f"{entry.process}.{entry.transition}",
        f"queue {entry.queue}",
        f"errors {entry.errors_count}",
        f"age {span_of(entry.age_seconds)}",
    )
    return f"{'  '.join(facts)}  {entry.code}: {entry.detail}. Next: {entry.next_command}"


def table(counts: list[Tally]) -> list[str]:
    """
    Lay out how many rows have which reason.
    """
    if not counts:
        return []
    rows = [("queue", "reason", "rows", "oldest")]
    rows += [
        (entry.queue, str(Code(entry.code)), f"{entry.count:,}", span_of(entry.oldest_seconds)) for entry in counts
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"{queue.ljust(widths[0])}  {code.ljust(widths[1])}  {count.rjust(widths[2])}  {oldest.rjust(widths[3])}"
        for queue, code, count, oldest in rows
    ]
