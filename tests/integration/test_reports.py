"""
Promises of the figures about stays: `time_in_state`, `durations` and `stuck`.
"""

from __future__ import annotations

import random
import statistics
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.db import connection, models
from django.db.models import Max
from django.test.utils import isolate_apps
from django.utils import timezone as django_timezone

from django_logic import Process, ProcessManager, Transition
from django_logic.models import StatusChange
from django_logic.reports import TimeInState
from tests.app.models import (
    Base,
    Child,
    Grade,
    Item,
    Level,
    Loose,
    Order,
    OrderProxy,
    Parcel,
    Sale,
    SlugDocument,
    Status,
    Ticket,
    UuidDocument,
)
from tests.flows import Bind, declare
from tests.past import DAWN, force, live, row

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def sale(*moves: tuple[Any, Any]) -> Sale:
    """
    Make a sale with a past.
    """
    return live(Sale.objects.create(), *moves)


def seconds(number: float) -> timedelta:
    """
    Write a duration short.
    """
    return timedelta(seconds=number)


def test_time_in_state_reads_the_moves_that_were_made() -> None:
    """
    Moves through the public interface give an open stay, and a finished one of exactly the time between them.
    """
    order, waiting = Sale.objects.create(), Sale.objects.create()
    for target in (Status.PLACED, Status.PROCESSING, Status.FULFILLED):
        order.transition_to(target)
    waiting.transition_to("placed")
    waiting.transition_to("processing")

    figures = StatusChange.objects.time_in_state(Sale, state="processing")

    entered, left = order.history.filter(sequence__gte=2).values_list("occurred_at", flat=True)
    took = left - entered
    assert figures == TimeInState(count=1, mean=took, p50=took, p95=took, max=took, open=1)


def test_time_in_state_of_a_state_nobody_left_has_no_times() -> None:
    """
    Without a finished stay every time is None, and the count is 0.
    """
    sale((Status.PLACED, 0), (Status.PROCESSING, 5))

    figures = StatusChange.objects.time_in_state(Sale, "processing")

    assert figures == TimeInState(count=0, mean=None, p50=None, p95=None, max=None, open=1)


def test_time_in_state_is_exact_to_the_microsecond() -> None:
    """
    A mean of 2⅓ µs is rounded once, and stays of years keep their last digit.
    """
    long = timedelta(days=4000, microseconds=1)
    for took in (timedelta(microseconds=1), timedelta(microseconds=2), timedelta(microseconds=4)):
        sale(("placed", DAWN), ("cancelled", DAWN + took))
    sale(("placed", DAWN), ("processing", DAWN + long), ("cancelled", DAWN + long + long))

    placed = StatusChange.objects.time_in_state(Sale, "placed")
    processing = StatusChange.objects.time_in_state(Sale, "processing")

    assert placed.mean == timedelta(microseconds=round(Fraction(7 + long // timedelta(microseconds=1), 4)))
    assert placed.p50 == timedelta(microseconds=3)
    assert placed.max == processing.max == long


@pytest.mark.parametrize("number", [1, 2, 3, 4, 20, 21, 40, 41])
def test_percentiles_lie_between_the_two_stays_around_them(number: int) -> None:
    """
    p50 and p95 equal Python's inclusive quantiles, whatever the number of stays.
    """
    randomly = random.Random(number)  # noqa: S311 (the same numbers in every run)
    micros = [randomly.randrange(10**9) for _ in range(number)]
    for took in micros:
        sale(("placed", DAWN), ("cancelled", DAWN + timedelta(microseconds=took)))

    figures = StatusChange.objects.time_in_state(Sale, "placed")

    cuts = statistics.quantiles(map(Fraction, micros * (2 if number == 1 else 1)), n=20, method="inclusive")
    assert figures.count == number
    assert figures.p50 == timedelta(microseconds=round(cuts[9]))
    assert figures.p95 == timedelta(microseconds=round(cuts[18]))
    assert figures.mean == timedelta(microseconds=round(Fraction(sum(micros), number)))


def test_percentiles_equal_those_of_postgresql(only_postgres: None) -> None:
    """
    p50 and p95 are what percentile_cont makes of the same stays.
    """
    for took in (3, 50, 7, 11, 400, 90):
        sale(("placed", 0), ("cancelled", took))

    figures = StatusChange.objects.time_in_state(Sale, "placed")

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY took),"
            " percentile_cont(0.95) WITHIN GROUP (ORDER BY took)"
            " FROM (VALUES (interval '3 s'), ('50 s'), ('7 s'), ('11 s'), ('400 s'), ('90 s')) AS stay (took)"
        )
        assert (figures.p50, figures.p95) == cursor.fetchone()


def test_sums_of_many_long_stays_do_not_overflow() -> None:
    """
    Stays that add up to more microseconds than 64 bits hold still have a mean.
    """
    far = datetime(9999, 1, 1, tzinfo=UTC)
    orders = Sale.objects.bulk_create([Sale(status="cancelled") for _ in range(50)])
    early = datetime(1000, 1, 1, tzinfo=UTC)
    StatusChange.objects.bulk_create(
        line
        for order in orders
        for line in (row(order, 1, "draft", "placed", early), row(order, 2, "placed", "cancelled", far))
    )

    figures = StatusChange.objects.time_in_state(Sale, "placed")

    assert (figures.count, figures.mean, figures.p95) == (50, far - early, far - early)


def test_since_and_until_choose_by_when_a_stay_began() -> None:
    """
    The first moment belongs to the period, the last one does not, so that periods add up, open stays included.
    """
    for began in (0, 10, 20):
        sale(("placed", began), ("cancelled", began + 100))
        sale(("placed", began))

    def between(since: float | None, until: float | None) -> tuple[int, int]:
        found = StatusChange.objects.time_in_state(
            Sale,
            "placed",
            since=None if since is None else DAWN + seconds(since),
            until=None if until is None else DAWN + seconds(until),
        )
        return found.count, found.open

    assert between(0, 10) == (1, 1)
    assert between(10, 20) == (1, 1)
    assert between(10, None) == (2, 2)
    assert between(None, 20) == (2, 2)
    assert between(None, None) == (3, 3)


def test_each_stay_of_one_object_counts() -> None:
    """
    An object that came back has two stays.
    """
    document = live(UuidDocument(state="new"), ("published", 0), ("new", 10), ("published", 15), ("archived", 45))
    document.save()

    figures = StatusChange.objects.time_in_state(UuidDocument, "published")

    assert (figures.count, figures.mean, figures.max, figures.open) == (2, seconds(20), seconds(30), 0)


def test_move_from_a_state_to_itself_neither_ends_nor_begins_a_stay() -> None:
    """
    A self-transition is work within a stay: the time runs on from the first entry, for stuck objects too.
    """
    document = UuidDocument.objects.create(state="published")
    live(document, ("new", 0), ("new", 30), ("new", 60), ("published", 100))
    still = UuidDocument.objects.create(state="published")
    live(still, ("new", 0), ("new", django_timezone.now()))

    figures = StatusChange.objects.time_in_state(UuidDocument, "new")
    stuck = StatusChange.objects.stuck(UuidDocument, "new", longer_than=HOUR)

    assert figures == TimeInState(
        count=1, mean=seconds(100), p50=seconds(100), p95=seconds(100), max=seconds(100), open=1
    )
    assert [(change.instance_id, change.occurred_at) for change in stuck] == [(str(still.pk), DAWN)]


def test_stay_that_began_unrecorded_is_not_counted() -> None:
    """
    Nobody knows how long an object was in the state it was born in, so that stay has no figure.
    """
    sale(("placed", 50))
    Sale.objects.create()

    figures = StatusChange.objects.time_in_state(Sale, "draft")

    assert (figures.count, figures.open) == (0, 0)


def test_recorded_birth_begins_a_stay(bind: Bind) -> None:
    """
    With record_initial_state the first state has figures too, a null state included.
    """
    going = Transition("go", sources=["new", None], target="gone")
    bind(declare(going, record_initial_state=True), Ticket)
    bind(declare(going, record_initial_state=True), Loose)
    left, _stays = Ticket.objects.create(), Ticket.objects.create()
    nothing, _nothing = Loose.objects.create(state=None), Loose.objects.create(state=None)
    left.flow.go()
    nothing.flow.go()

    new = StatusChange.objects.time_in_state(Ticket, "new", process_name="flow")
    null = StatusChange.objects.time_in_state(Loose, None, process_name="flow")

    born, gone = left.flow.history.values_list("occurred_at", flat=True)
    assert (new.count, new.mean, new.open) == (1, gone - born, 1)
    assert (null.count, null.open) == (1, 1)


def test_stay_that_ended_past_the_library_is_not_counted() -> None:
    """
    A column that was written directly leaves a stay whose end nobody knows: it is neither finished nor open nor stuck.
    """
    sale(("placed", 0), ("processing", 10))
    moved = Sale.objects.get()
    force(moved, "placed")
    StatusChange.objects.bulk_create([row(moved, 3, "placed", "processing", 500)])
    force(moved, "processing")
    StatusChange.objects.bulk_create([row(moved, 4, "processing", "fulfilled", 507)])
    force(moved, "fulfilled")
    force(sale(("placed", 0), ("processing", 10)), "cancelled")

    figures = StatusChange.objects.time_in_state(Sale, "processing")
    stuck = StatusChange.objects.stuck(Sale, "processing", longer_than=HOUR)

    assert (figures.count, figures.max, figures.open) == (1, seconds(7), 0)
    assert list(stuck) == []


def test_deleted_objects_keep_their_finished_stays_and_are_not_stuck() -> None:
    """
    What a deleted object did stays in the figures; it is in no state any more.
    """
    sale(("placed", 0), ("processing", 10), ("fulfilled", 15)).delete()
    sale(("placed", 0), ("processing", 10)).delete()

    figures = StatusChange.objects.time_in_state(Sale, "processing")
    stuck = StatusChange.objects.stuck(Sale, "processing", longer_than=HOUR)

    assert (figures.count, figures.max, figures.open) == (1, seconds(5), 0)
    assert list(stuck) == []


@pytest.mark.parametrize("state", [Grade.BRONZE, 1, "1"])
def test_state_may_be_an_enum_member_a_number_or_its_text(state: Any) -> None:
    """
    However a state is written, the same stays are found; 0 is a state like others.
    """
    for grade in (Grade.NONE, Grade.BRONZE):
        level = Level.objects.create(state=Grade.GOLD)
        live(level, (Grade.BRONZE, 0), (Grade.NONE, 60), *([(grade, 90)] if grade else []))

    figures = StatusChange.objects.time_in_state(Level, state)
    none = StatusChange.objects.time_in_state(Level, Grade.NONE)

    assert (figures.count, figures.mean, figures.open) == (2, seconds(60), 1)
    assert (none.count, none.max, none.open) == (1, seconds(30), 1)


def test_null_and_empty_text_are_two_states(bind: Bind) -> None:
    """
    A column without a value and one with an empty text are told apart.
    """
    bind(
        declare(Transition("go", sources=["", "new"], target=None), Transition("stop", sources=[None], target="")),
        Loose,
    )
    keep = {"process": "flow"}
    live(Loose.objects.create(state="new"), (None, 0), ("", 7), **keep)
    live(Loose.objects.create(state="new"), (None, 0), **keep)

    null = StatusChange.objects.time_in_state(Loose, None, process_name="flow")
    empty = StatusChange.objects.time_in_state(Loose, "", process_name="flow")

    assert (null.count, null.max, null.open) == (1, seconds(7), 1)
    assert (empty.count, empty.open) == (0, 1)


def test_states_that_differ_in_their_case_are_two_states(bind: Bind) -> None:
    """
    "Draft" is not "draft", whatever the database's collation says.
    """
    bind(declare(Transition("go", sources=["draft"], target="Draft"), Transition("back", sources="*", target="draft")))
    live(Ticket.objects.create(state="Draft"), ("draft", 0), ("Draft", 10), ("draft", 30), process="flow")

    small = StatusChange.objects.time_in_state(Ticket, "draft", process_name="flow")
    big = StatusChange.objects.time_in_state(Ticket, "Draft", process_name="flow")

    assert (small.count, small.max, big.count, big.max) == (1, seconds(10), 1, seconds(20))


@pytest.mark.parametrize(
    "keyed",
    [
        pytest.param(lambda: UuidDocument.objects.create(), id="uuid"),
        pytest.param(lambda: SlugDocument.objects.create(slug="a/b ü%_'\"c"), id="text"),
        pytest.param(lambda: Base.objects.create(pk=2**62), id="big integer"),
        pytest.param(lambda: Base.objects.create(pk=-5), id="negative integer"),
    ],
)
def test_objects_with_any_key_are_found(keyed: Any) -> None:
    """
    Open stays are matched with their objects by key, however the database writes it.
    """
    document = live(keyed(), ("published", 0))

    figures = StatusChange.objects.time_in_state(type(document), "published")
    stuck = StatusChange.objects.stuck(type(document), "published", longer_than=HOUR)

    assert figures.open == 1
    assert [change.instance_id for change in stuck] == [str(document.pk)]


@pytest.mark.django_db(transaction=True)
@isolate_apps("tests.app")
def test_objects_with_a_key_the_database_writes_otherwise_are_judged_by_history_alone(bind: Bind) -> None:
    """
    For a decimal key the column can't be asked, so the newest move alone says who is there, deleted objects too.
    """

    class Priced(models.Model):
        price = models.DecimalField(primary_key=True, max_digits=8, decimal_places=3)
        state = models.CharField(max_length=20, default="new")

        class Meta:
            app_label = "app"

    with connection.schema_editor() as editor:
        editor.create_model(Priced)
    try:
        bind(declare(Transition("go", sources=["new"], target="gone")), Priced)
        priced = Priced.objects.create(price="1.500")
        priced.refresh_from_db()
        live(priced, ("gone", 0), process="flow")

        stuck = StatusChange.objects.stuck(Priced, "gone", longer_than=HOUR, process_name="flow")

        assert [change.instance_id for change in stuck] == ["1.500"]
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(Priced)


def test_proxies_and_children_share_the_history_of_the_column() -> None:
    """
    Asking the proxy, the child or the owner gives the same answer.
    """
    live(Order.objects.create(), ("approved", 0), ("cancelled", 10))
    live(Child.objects.create(), ("published", 0), ("archived", 20))

    by_proxy = StatusChange.objects.time_in_state(OrderProxy, "approved")
    by_child = StatusChange.objects.time_in_state(Child, "published")

    assert by_proxy == StatusChange.objects.time_in_state(Order, "approved")
    assert by_child == StatusChange.objects.time_in_state(Base, "published")
    assert (by_proxy.max, by_child.max) == (seconds(10), seconds(20))


def test_process_bound_to_a_child_answers_for_the_owner(bind: Bind) -> None:
    """
    History belongs to the model with the column, so the owner is asked about a process that only its child has.
    """
    bind(declare(Transition("go", sources=["new"], target="gone")), Child)
    child = Child.objects.create()
    child.flow.go()

    figures = StatusChange.objects.time_in_state(Base, "gone", process_name="flow")

    assert figures.open == 1


def test_machines_of_one_model_are_told_apart() -> None:
    """
    With two processes one has to be named, and each counts its own moves.
    """
    parcel = Parcel.objects.create()
    live(parcel, ("paid", 0), ("refunded", 10), field="payment_status", process="payment")
    live(parcel, ("packed", 0), field="parcel_status", process="parcel")

    with pytest.raises(ValueError, match=r"app.Parcel has several processes: 'parcel', 'payment'. Name one of them."):
        StatusChange.objects.time_in_state(Parcel, "paid")

    assert StatusChange.objects.time_in_state(Parcel, "paid", process_name="payment").count == 1
    assert StatusChange.objects.time_in_state(Parcel, "packed", process_name="parcel").open == 1


def test_mistakes_are_refused_with_what_to_write_instead() -> None:
    """
    A misspelled state or process, an unbound model and times that can't be meant raise ValueError before any figure.
    """
    objects = StatusChange.objects

    with pytest.raises(ValueError, match=r"app.Sale, process: the state 'procesing' .* Did you mean 'processing'\?"):
        objects.time_in_state(Sale, "procesing")
    with pytest.raises(ValueError, match="the state None is neither declared nor recorded"):
        objects.stuck(Sale, None, longer_than=HOUR)
    with pytest.raises(
        ValueError, match=r"has no process 'paymnt'; found 'parcel', 'payment'. Did you mean 'payment'\?"
    ):
        objects.durations(Parcel, "paid", process_name="paymnt")
    with pytest.raises(ValueError, match=r"app.Item has no process, so it has no history"):
        objects.time_in_state(Item, "new")
    with pytest.raises(ValueError, match=r"a model class is needed here; found 'app.Sale'"):
        objects.time_in_state("app.Sale", "placed")
    with pytest.raises(ValueError, match="since= must be with a time zone, since USE_TZ is on"):
        objects.time_in_state(Sale, "placed", since=datetime(2024, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="since= must not be later than until="):
        objects.durations(Sale, "placed", since=DAWN + HOUR, until=DAWN)


@pytest.mark.parametrize("longer_than", [timedelta(seconds=-1), 48, None])
def test_stuck_refuses_a_time_that_is_none(longer_than: Any) -> None:
    """
    A number would leave its unit open, and a negative time means nothing.
    """
    with pytest.raises(ValueError, match="longer_than= takes a timedelta that is not negative"):
        StatusChange.objects.stuck(Sale, "placed", longer_than=longer_than)


def test_state_that_was_removed_from_the_code_keeps_its_past() -> None:
    """
    What history knows can be asked for, though no declaration names it any more.
    """
    sale(("placed", 0), ("packed", 10), ("cancelled", 30))

    figures = StatusChange.objects.time_in_state(Sale, "packed")

    assert (figures.count, figures.max, figures.open) == (1, seconds(20), 0)


def test_removed_state_that_the_column_could_not_hold_has_a_past_too() -> None:
    """
    History is text, so a state from before the column became a number can be asked for.
    """
    live(Level.objects.create(), ("iron", 0), (Grade.GOLD, 10))

    figures = StatusChange.objects.time_in_state(Level, "iron")

    assert (figures.count, figures.open) == (1, 0)


def test_filters_set_before_narrow_the_entries_and_nothing_else() -> None:
    """
    Who brought the object into the state can be asked for; the move that ended the stay may be anybody's.
    """
    order = Sale.objects.create()
    for each, actor in ((order, "warehouse"), (Sale.objects.create(), "shop")):
        StatusChange.objects.bulk_create(
            [
                row(each, 1, "draft", "placed", 0, actor_label=actor),
                row(each, 2, "placed", "cancelled", 10 if actor == "shop" else 30, actor_label="customer"),
            ]
        )
        force(each, "cancelled")

    figures = StatusChange.objects.filter(actor_label="warehouse").time_in_state(Sale, "placed")

    assert (figures.count, figures.max) == (1, seconds(30))


def test_durations_give_each_finished_stay() -> None:
    """
    Each row is the move by which an object entered, with when it entered and left and the time between, oldest first.
    """
    second = sale(("placed", 10), ("cancelled", 70))
    first = sale(("placed", 0), ("cancelled", 5))
    sale(("placed", 20))

    stays = StatusChange.objects.durations(Sale, "placed")

    assert [(stay.instance_id, stay.entered_at, stay.left_at, stay.duration) for stay in stays] == [
        (str(first.pk), DAWN, DAWN + seconds(5), seconds(5)),
        (str(second.pk), DAWN + seconds(10), DAWN + seconds(70), seconds(60)),
    ]


def test_durations_can_be_filtered_grouped_and_streamed() -> None:
    """
    They are a queryset: conditions on the duration, aggregates, values and iterator() work in the database.
    """
    for took in (5, 60, 600):
        sale(("placed", 0), ("cancelled", took))

    stays = StatusChange.objects.durations(Sale, "placed", since=DAWN, until=DAWN + HOUR)

    assert stays.filter(duration__gte=timedelta(minutes=1)).count() == 2
    assert stays.aggregate(longest=Max("duration")) == {"longest": seconds(600)}
    assert list(stays.values_list("duration", flat=True)) == [seconds(5), seconds(60), seconds(600)]
    assert sum((stay.duration for stay in stays.iterator()), timedelta()) == seconds(665)


def test_stuck_lists_the_entries_of_those_who_are_there_for_longer() -> None:
    """
    Oldest first, only those in the state now, only those there for strictly longer.
    """
    now = django_timezone.now()
    old = sale(("placed", now - 9 * HOUR), ("processing", now - 5 * HOUR))
    older = sale(("placed", now - 9 * HOUR), ("processing", now - 8 * HOUR))
    sale(("placed", now - 9 * HOUR), ("processing", now - HOUR))
    sale(("placed", now - 9 * HOUR), ("processing", now - 8 * HOUR), ("fulfilled", now - 7 * HOUR))

    stuck = StatusChange.objects.stuck(Sale, Status.PROCESSING, longer_than=4 * HOUR)

    assert [(change.instance_id, change.to_state, change.sequence) for change in stuck] == [
        (str(older.pk), "processing", 2),
        (str(old.pk), "processing", 2),
    ]


def test_stuck_is_a_queryset_of_history() -> None:
    """
    It can be counted, sliced, filtered and read with its actors.
    """
    for number in range(3):
        sale(("placed", number))

    stuck = StatusChange.objects.stuck(Sale, "placed", longer_than=timedelta(0))

    assert stuck.count() == 3
    assert [change.actor for change in stuck.with_actors()[:2]] == [None, None]
    assert stuck.filter(action="other").exists() is False


def test_stuck_for_longer_than_there_are_dates_is_nobody() -> None:
    """
    A time that reaches back before the calendar finds nothing instead of failing.
    """
    sale(("placed", 0))

    assert list(StatusChange.objects.stuck(Sale, "placed", longer_than=timedelta.max)) == []


def test_number_of_queries_does_not_grow(django_assert_num_queries: Any) -> None:
    """
    Two queries for the figures, one for who is stuck, one for the durations, whatever the number of objects.
    """
    for number in range(12):
        sale(("placed", number), ("processing", number + 5), *([("fulfilled", 90)] if number % 2 else []))

    with django_assert_num_queries(2):
        StatusChange.objects.time_in_state(Sale, "processing")
    with django_assert_num_queries(1):
        assert len(StatusChange.objects.stuck(Sale, "processing", longer_than=HOUR)) == 6
    with django_assert_num_queries(1):
        assert len(StatusChange.objects.durations(Sale, "processing")) == 6


@pytest.mark.django_db(databases=["default", "other"])
def test_each_database_answers_for_itself() -> None:
    """
    using() chooses the history and the objects together.
    """
    live(Sale.objects.using("other").create(), ("placed", 0), using="other")

    here = StatusChange.objects.time_in_state(Sale, "placed")
    there = StatusChange.objects.using("other").time_in_state(Sale, "placed")
    stuck = StatusChange.objects.using("other").stuck(Sale, "placed", longer_than=HOUR)

    assert (here.open, there.open, len(stuck)) == (0, 1, 1)


def test_time_zones_of_the_session_change_no_figure(settings: Any) -> None:
    """
    A stay across the change to summer time is as long as it was.
    """
    settings.TIME_ZONE = "Europe/Berlin"
    night = datetime(2024, 3, 31, 0, 30, tzinfo=UTC)
    with django_timezone.override("Europe/Berlin"):
        sale(("placed", night), ("cancelled", night + HOUR))

        figures = StatusChange.objects.time_in_state(Sale, "placed")
        (duration,) = StatusChange.objects.durations(Sale, "placed").values_list("duration", flat=True)

    assert (figures.max, duration) == (HOUR, HOUR)


LARGE = """
INSERT INTO django_logic_statuschange (app_label, model_name, instance_id, process_name, field_name, action, from_state,
    to_state, actor_id, actor_label, reason, occurred_at, transition_id, root_id, metadata, sequence)
SELECT 'app', 'sale', object::text, 'process', 'status', 'go',
    (ARRAY['draft', 'placed', 'processing', 'fulfilled'])[step],
    (ARRAY['placed', 'processing', 'fulfilled', 'closed'])[step],
    '', '', '', timestamptz '2024-01-01 00:00Z' + object * interval '1 minute' + step * interval '1 hour',
    '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', '{}', step
FROM generate_series(1, 25000) AS object, generate_series(1, 4) AS step
WHERE step < 3 OR object % 100 > 0
"""
OBJECTS = """
INSERT INTO app_sale (id, status, note, updated_at)
SELECT object, CASE WHEN object % 100 > 0 THEN 'closed' ELSE 'processing' END, '', now()
FROM generate_series(1, 25000) AS object
"""


@pytest.fixture
def large_history(only_postgres: None, db: None) -> None:
    """
    Give nearly 100,000 moves of 25,000 sales, of which 250 are in processing.
    """
    with connection.cursor() as cursor:
        cursor.execute(LARGE)
        cursor.execute(OBJECTS)
        cursor.execute("ANALYZE django_logic_statuschange, app_sale")


def test_large_history_is_read_by_its_indexes(large_history: None) -> None:
    """
    Who is stuck is looked up from the few objects in the state, their moves by the unique index, no table read whole;
    the figures of a period start from the index of entries.
    """
    stuck = StatusChange.objects.stuck(Sale, "processing", longer_than=HOUR)
    week = {"since": DAWN + timedelta(days=3), "until": DAWN + timedelta(days=4)}
    stays = StatusChange.objects.durations(Sale, "processing", **week)

    plan, durations = stuck.explain(), stays.explain()

    assert len(stuck) == 250
    assert "dl_history_one_sequence" in plan
    assert "Seq Scan on django_logic_statuschange" not in plan
    assert "dl_history_entered" in durations
    assert "dl_history_one_sequence" in durations
    assert "Seq Scan" not in durations
    assert StatusChange.objects.time_in_state(Sale, "processing", **week) == TimeInState(
        count=1425, mean=HOUR, p50=HOUR, p95=HOUR, max=HOUR, open=15
    )


def test_binding_without_declared_states_is_no_obstacle(bind: Bind) -> None:
    """
    A process without a transition has the states of its field's choices.
    """

    class Empty(Process):
        process_name = "empty"

    ProcessManager.bind_model_process(Order, Empty, "status")
    try:
        assert StatusChange.objects.time_in_state(Order, "draft", process_name="empty").count == 0
    finally:
        ProcessManager.unbind_model_process(Order, Empty)
