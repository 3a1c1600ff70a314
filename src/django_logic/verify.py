"""
Comparing what history, columns and the database say of the same objects.

Reads only, a thousand objects at a time; what looks wrong is looked at twice, since a move may commit meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db import connections, models
from django.db.models import F, Window
from django.db.models.functions import RowNumber

from django_logic.checks import difference, moves_of
from django_logic.constraints import TransitionConstraint, is_installed
from django_logic.machines import Machine, machines
from django_logic.progress import Advance
from django_logic.records import history_model
from django_logic.states import as_text, nearest
from django_logic.tree import dotted

__all__ = ["Finding", "FindingCode", "size_of", "verify"]

#: How many objects, or histories, are held in memory at a time.
CHUNK = 1000
#: How many objects an unknown state names.
EXAMPLES = 3
#: How many unknown states are told apart; a column of random text must not fill the memory.
STRANGERS = 1000


class FindingCode(StrEnum):
    """
    Name the kinds of disagreement.
    """

    COLUMN = "column"
    CHAIN = "chain"
    SEQUENCE = "sequence"
    UNKNOWN_STATE = "unknown_state"
    CONSTRAINT_DIFFERS = "constraint_differs"
    CONSTRAINT_MISSING = "constraint_missing"


MENDS: Mapping[FindingCode, str] = {
    FindingCode.COLUMN: (
        "Something wrote the column past the library: look for it with manage.py dl_lint, then set the column to"
        " what history says, or let a TransitionConstraint refuse such writes."
    ),
    FindingCode.CHAIN: "Something wrote the column past the library in between: look for it with manage.py dl_lint.",
    FindingCode.SEQUENCE: "History is append-only: restore the missing rows from a backup, and see who deletes them.",
    FindingCode.UNKNOWN_STATE: "Rename it with the migration operation RenameState, or declare it again.",
    FindingCode.CONSTRAINT_DIFFERS: "Run manage.py check, paste the entry it prints, then makemigrations and migrate.",
    FindingCode.CONSTRAINT_MISSING: "Run manage.py makemigrations and migrate; a restored dump may lack its triggers.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    Hold one disagreement. ``object`` is the key history knows the object by, empty where a whole column is meant.
    """

    code: FindingCode
    model: str
    process: str
    object: str
    text: str
    mend: str


def finding(machine: Machine, code: FindingCode, text: str, key: str = "") -> Finding:
    """
    Make a finding about a machine.
    """
    return Finding(
        code=code, model=machine.label, process=machine.column.process_name, object=key, text=text, mend=MENDS[code]
    )


def verify(machine: Machine, using: str, advance: Advance = lambda steps: None) -> Iterator[Finding]:
    """
    Yield what disagrees in one machine on one database, as it is found.

    An object without history is fine: it never moved. ``advance`` is told of every object and move that was read.
    """
    yield from constraint_findings(machine, using)
    yield from column_findings(machine, using, advance)
    yield from chain_findings(machine, using, advance)


def size_of(machine: Machine, using: str) -> int:
    """
    Count the objects and moves there are to read.
    """
    return objects_of(machine, using).count() + moves_on(machine, using).count()


def objects_of(machine: Machine, using: str) -> models.QuerySet[Any]:
    """
    Return key and state of every object, by key.
    """
    rows: models.QuerySet[Any] = models.QuerySet(model=machine.column.owner, using=using).order_by("pk")
    return rows.values_list("pk", machine.column.field.attname)


def moves_on(machine: Machine, using: str) -> models.QuerySet[Any]:
    """
    Return the machine's history.
    """
    column = machine.column
    return models.QuerySet(model=history_model(), using=using).filter(
        app_label=column.app_label, model_name=column.model_name, process_name=column.process_name
    )


def sharers_of(machine: Machine) -> list[Machine]:
    """
    Return every machine that moves the same column, the given one included.
    """
    column = machine.column
    others = machines(column.owner)
    return [entry for entry in others if (entry.column.owner, entry.column.name) == (column.owner, column.name)]


def constraint_findings(machine: Machine, using: str) -> Iterator[Finding]:
    """
    Compare the column's TransitionConstraint, where it has one, with the declared moves and with the database.
    """
    sharers, owner = sharers_of(machine), machine.column.owner
    declared = frozenset().union(*(entry.edges for entry in sharers))
    names = ", ".join(dict.fromkeys(dotted(each) for entry in sharers for each in entry.process_classes))
    for entry in owner._meta.constraints:
        if not isinstance(entry, TransitionConstraint) or entry.field != machine.column.name:
            continue
        told = difference(declared, moves_of(entry))
        if told:
            text = f"the constraint {entry.name!r} differs from {names}: {told}."
            yield finding(machine, FindingCode.CONSTRAINT_DIFFERS, text)
        if not is_installed(connections[using], owner, entry):
            text = f"the constraint {entry.name!r} is not in the database, or not as it is declared now."
            yield finding(machine, FindingCode.CONSTRAINT_MISSING, text)


@dataclass
class Strangers:
    """
    Count the stored states the code does not know.
    """

    machine: Machine
    known: frozenset[str | None]
    counts: Counter[str | None] = field(default_factory=Counter)
    examples: dict[str | None, list[str]] = field(default_factory=dict)
    others: int = 0

    def look_at(self, key: str, state: str | None) -> None:
        """
        Take notice of one object.
        """
        if state in self.known:
            return
        if state not in self.counts and len(self.counts) == STRANGERS:
            self.others += 1
            return
        self.counts[state] += 1
        shown = self.examples.setdefault(state, [])
        if len(shown) < EXAMPLES:
            shown.append(key)

    def findings(self) -> Iterator[Finding]:
        """
        Yield one finding for each state.
        """
        for state, count in self.counts.most_common():
            hold = "1 object holds" if count == 1 else f"{count:,} objects hold"
            keys = ", ".join(self.examples[state]) + (", …" if count > EXAMPLES else "")
            hint = nearest(state, [known for known in self.known if known is not None])
            text = f"{hold} the state {state!r}, which the code does not know: {keys}.{hint}"
            yield finding(self.machine, FindingCode.UNKNOWN_STATE, text)
        if self.others:
            text = f"{self.others:,} more objects hold still other states the code does not know."
            yield finding(self.machine, FindingCode.UNKNOWN_STATE, text)


def column_findings(machine: Machine, using: str, advance: Advance) -> Iterator[Finding]:
    """
    Compare each object's column with its newest move, and with the states the code knows.

    The column is read before the moves, both times: so a move that commits in between can't tell the same lie twice.
    """
    known = frozenset().union(*(entry.states for entry in sharers_of(machine)))
    rows, strangers = objects_of(machine, using), Strangers(machine, known)
    for chunk in chunks(rows, "pk", chunk_size(using)):
        for key, state in chunk:
            strangers.look_at(str(key), as_text(state))
        suspects = disagreeing(machine, using, chunk)
        if suspects:
            again = disagreeing(machine, using, list(rows.filter(pk__in=suspects)))
            yield from (found for key, found in suspects.items() if again.get(key) == found)
        advance(len(chunk))
    yield from strangers.findings()


def disagreeing(machine: Machine, using: str, rows: list[tuple[Any, Any]]) -> dict[Any, Finding]:
    """
    Return the findings about objects whose column is not where their newest move went, by primary key.
    """
    names = [entry.column.process_name for entry in sharers_of(machine)]
    # Processes that share a column count their moves apart.
    order = "sequence" if len(names) == 1 else "id"
    column = machine.column
    moves: models.QuerySet[Any] = models.QuerySet(model=history_model(), using=using).filter(
        app_label=column.app_label, model_name=column.model_name, process_name__in=names
    )
    # A window reads each row once whatever the planner believes; NOT EXISTS is quadratic while statistics are stale.
    latest = Window(RowNumber(), partition_by=F("instance_id"), order_by=F(order).desc())
    newest = {
        key: (sequence, state)
        for key, sequence, state in moves.filter(instance_id__in=[str(key) for key, _state in rows])
        .annotate(latest=latest)
        .filter(latest=1)
        .order_by()
        .values_list("instance_id", "sequence", "to_state")
    }
    found = {}
    for key, state in rows:
        sequence, moved_to = newest.get(str(key), (0, as_text(state)))
        if moved_to != as_text(state):
            text = f"the column holds {as_text(state)!r}, but the newest move (number {sequence}) went to {moved_to!r}."
            found[key] = finding(machine, FindingCode.COLUMN, text, str(key))
    return found


def chain_findings(machine: Machine, using: str, advance: Advance) -> Iterator[Finding]:
    """
    Follow each history from its first move, those of deleted objects included.
    """
    moves = moves_on(machine, using)
    keys = moves.order_by("instance_id").values_list("instance_id").distinct()
    is_alone = len(sharers_of(machine)) == 1
    columns = ("instance_id", "sequence", "from_state", "to_state")
    for chunk in chunks(keys, "instance_id", CHUNK):
        span = moves.filter(instance_id__gte=chunk[0][0], instance_id__lte=chunk[-1][0])
        rows = span.order_by("instance_id", "sequence").values_list(*columns).iterator(CHUNK)
        for key, history in groupby(rows, key=itemgetter(0)):
            for code, text in breaks(counted(history, advance)):
                if is_alone or code == FindingCode.SEQUENCE:
                    yield finding(machine, code, text, key)


def counted(rows: Iterable[Any], advance: Advance) -> Iterator[Any]:
    """
    Pass rows on, telling of each.
    """
    for row in rows:
        advance(1)
        yield row


def breaks(history: Iterable[tuple[str, int, str | None, str | None]]) -> Iterator[tuple[FindingCode, str]]:
    """
    Yield where one object's moves don't follow each other.
    """
    number, state = 0, None
    for _key, sequence, start, end in history:
        if sequence != number + 1 and number == 0:
            yield FindingCode.SEQUENCE, f"the first move on record is number {sequence}, not 1."
        elif sequence != number + 1:
            yield FindingCode.SEQUENCE, f"move {number} is followed by move {sequence}."
        elif number and start != state:
            text = f"move {number} went to {state!r}, but move {sequence} starts from {start!r}."
            yield FindingCode.CHAIN, text
        number, state = sequence, end


def chunks(rows: models.QuerySet[Any], name: str, size: int) -> Iterator[list[Any]]:
    """
    Yield tuples in order of their first column, a list at a time, without keeping a query open.
    """
    page = rows
    while chunk := list(page[:size]):
        yield chunk
        page = rows.filter(**{f"{name}__gt": chunk[-1][0]})


def chunk_size(using: str) -> int:
    """
    Return how many objects a query can name on this database, a few parameters left over.
    """
    limit = connections[using].features.max_query_params
    return min(CHUNK, limit - 50) if limit else CHUNK
