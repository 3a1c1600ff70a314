"""
Prove what a sceptical reader of the engine doubted: each test is a promise that was found broken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_logic import ProcessManager, signals
from django_logic.background import Snooze, claim, run_available, sync_execution
from django_logic.background.cancel import cancel_message
from django_logic.background.models import TransitionMessage
from django_logic.background.worker import accounts
from django_logic.clock import FromNow
from django_logic.exceptions import TransitionNotAllowed
from tests.app.hooked import Diary, fresh, stored
from tests.app.models import Ticket
from tests.background.flows import AT_ONCE, Flow, age, message, messages, new_ticket, run_out, work
from tests.background.onlookers import lock, session
from tests.races.together import Worker, together

pytestmark = pytest.mark.django_db(transaction=True)


class Boom(Exception):
    """
    Stand for whatever goes wrong in a hook.
    """


def boom(instance: Any, **keywords: Any) -> None:
    """
    Fail.
    """
    raise Boom("boom")


def test_row_that_comes_due_again_in_a_long_run_keeps_its_attempts(flow: Flow, diary: Diary) -> None:
    """
    `run_available` leaves a row that comes due again to the next call, and spends none of its attempts on the way.
    """

    def take_long(instance: Any, **keywords: Any) -> None:
        TransitionMessage.objects.filter(pk=first.pk).update(run_at=FromNow(-1))  # as ten seconds do

    flow(work(boom, retry=AT_ONCE, max_errors=3), work(take_long, action="slow", priority=5))
    failing, others = new_ticket(), [new_ticket() for _ in range(5)]
    failing.flow.go()
    first = message(failing)
    for other in others:
        other.flow.slow()

    run_available()

    row = message(failing)
    assert (row.attempts_started, row.errors_count) == (1, 1)
    assert "[lost]" not in row.last_error_message
    assert "boom" in row.last_error_message


def test_row_that_waited_for_its_time_is_deferred_by_code_that_does_not_know_it(flow: Flow) -> None:
    """
    A row that was delayed for days gets the same patience during a deploy as a row of this minute.
    """
    flow(work())
    ticket = new_ticket()
    ticket.flow.go(delay=timedelta(days=3))
    row = message(ticket)
    age(row, timedelta(days=3), "created")
    TransitionMessage.objects.filter(pk=row.pk).update(transition_name="of_newer_code", run_at=FromNow(-1))

    run_available()

    row = message(ticket)
    assert (row.is_completed, row.outcome) == (False, "")
    assert row.last_error_message.startswith("[deferred]")


class Customer:
    """
    Somebody who may log in and is no row of AUTH_USER_MODEL.
    """

    is_authenticated = True
    is_active = True

    def __init__(self, pk: int) -> None:
        self.pk = self.id = pk

    def get_username(self) -> str:
        """
        Return a name.
        """
        return "customer"

    def __str__(self) -> str:
        return "customer"


def test_user_of_another_kind_does_not_become_the_user_with_the_same_key(flow: Flow, ticket: Ticket) -> None:
    """
    Hooks on a worker never get somebody else's user: a customer 7 is not the staff member 7.
    """
    boss = get_user_model().objects.create_superuser("boss")
    seen: list[Any] = []

    def look(instance: Any, user: Any, **keywords: Any) -> None:
        seen.append(user)

    flow(work(look))
    try:
        ticket.flow.go(user=Customer(boss.pk))
    except TypeError:
        return  # refusing what can't be restored is as good
    run_available()

    assert [getattr(user, "is_superuser", False) for user in seen] == [False]


class TestWorkScheduledForAfterTheCommit:
    """
    What a hook scheduled by on_commit fails after the attempt is committed.
    """

    def flow_of(self, flow: Flow, diary: Diary, **attributes: Any) -> None:
        """
        Declare work that schedules something which fails.
        """

        def schedule(instance: Any, **keywords: Any) -> None:
            transaction.on_commit(lambda: boom(instance))

        flow(work(schedule, callbacks=[diary.hook("after")]), **attributes)

    def test_success_is_told(self, flow: Flow, diary: Diary, ticket: Ticket, caplog: Any) -> None:
        """
        The work has succeeded and is announced; the error is in the log and nobody says that the row was lost.
        """
        heard: list[Any] = []
        self.flow_of(flow, diary)

        def hear(call: Any, **keywords: Any) -> None:
            heard.append(call.action)

        signals.transition_finished.connect(hear)
        try:
            ticket.flow.go()
            run_available()
        finally:
            signals.transition_finished.disconnect(hear)

        assert (stored(ticket), message(ticket).outcome) == ("done", "succeeded")
        assert heard == ["go"]
        assert "boom" in caplog.text
        assert "lost its row" not in caplog.text

    def test_best_effort_callbacks_run(self, flow: Flow, diary: Diary, ticket: Ticket) -> None:
        """
        Without durable rows callbacks follow a committed success.
        """
        self.flow_of(flow, diary, durable_callbacks=False)
        ticket.flow.go()

        run_available()

        assert stored(ticket) == "done"
        assert [name for name, *_ in diary] == ["after"]


def test_context_that_is_too_large_altogether_does_not_fail_the_work(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    What hooks share reaches callbacks as far as it can be stored; the rest is named in the log and fails nothing.
    """

    def share(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        context["one"] = "x" * 600_000
        context["two"] = "y" * 600_000

    flow(work(share, callbacks=[diary.hook("after")]))
    ticket.flow.go()

    run_available()

    assert (stored(ticket), message(ticket).outcome) == ("done", "succeeded")


@pytest.mark.parametrize("seconds", [10**12, 10**15])
def test_snooze_beyond_all_times_is_refused(flow: Flow, ticket: Ticket, seconds: float) -> None:
    """
    A pause that no database can hold, as from somebody's Retry-After, fails the attempt and spoils no listing.
    """

    def snooze(instance: Any, **keywords: Any) -> None:
        raise Snooze(seconds)

    flow(work(snooze))
    ticket.flow.go()

    run_available()

    assert message(ticket).errors_count == 1


def test_session_that_is_lost_while_work_is_prepared_counts_as_a_failed_attempt(
    flow: Flow, ticket: Ticket, only_postgres: None
) -> None:
    """
    A connection that dies while prepare hooks wait for the outside costs one attempt, not an hour of waiting.
    """

    def lose_session(instance: Any, **keywords: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (pid,) = cursor.fetchone()
        with session() as other:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])

    flow(work(prepare=[lose_session], retry=AT_ONCE))
    ticket.flow.go()

    try:
        run_available(limit=1)
    except DatabaseError:
        connection.close()

    row = message(ticket)
    assert row.run_at - row.modified < timedelta(minutes=1)
    assert row.errors_count == 1


def test_question_whether_work_is_stranded_locks_nothing(flow: Flow, ticket: Ticket, only_postgres: None) -> None:
    """
    Listing actions within a transaction holds no lock on a late row, so that a worker may claim it meanwhile.
    """
    flow(work())
    ticket.flow.go()
    age(message(ticket), timedelta(hours=3), "run_at")

    with transaction.atomic():
        ProcessManager.available_actions(Ticket.objects.filter(pk=ticket.pk), process_name="flow")
        with session() as other:
            other.execute(
                "SELECT id FROM django_logic_background_transitionmessage WHERE id = %s FOR UPDATE SKIP LOCKED",
                [message(ticket).pk],
            )
            assert other.fetchone() is not None


def test_one_word_wakes_workers_however_many_savepoints_enqueue(flow: Flow, only_postgres: None) -> None:
    """
    At most one notification is sent for a transaction and queue.
    """
    flow(work())
    tickets = [new_ticket() for _ in range(5)]

    with CaptureQueriesContext(connection) as sent, transaction.atomic():
        for ticket in tickets:
            with transaction.atomic():
                ticket.flow.go()

    assert sum("PG_NOTIFY" in query["sql"].upper() for query in sent) == 1


def test_account_waits_for_no_lock_of_the_rows_behind(
    flow: Flow, diary: Diary, ticket: Ticket, only_postgres: None
) -> None:
    """
    The end of a callback's attempt is written although somebody holds a callback behind it.
    """
    flow(work(callbacks=[diary.hook("first"), diary.hook("second")]))
    ticket.flow.go()
    run_available(limit=1)
    first, second = messages(ticket, "callback")
    taken = claim.take("default", first.pk)
    assert taken is not None
    account = accounts.Account(message_id=first.pk, token=str(taken.claim_token), fate=accounts.Fate.CRASHED, text="x")

    with session() as other:
        lock(other, second.pk)
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '500ms'")
        try:
            has_landed = accounts.enter(account, "default")
        finally:
            with connection.cursor() as cursor:
                cursor.execute("RESET lock_timeout")

    assert has_landed
    assert TransitionMessage.objects.get(pk=first.pk).errors_count == 1


def test_two_who_cancel_at_once_both_get_an_answer(flow: Flow, only_postgres: None) -> None:
    """
    A second cancel of the same row, as by a double click, ends in an answer or a refusal.
    """
    flow(work())
    errors = []
    for _ in range(40):
        ticket = new_ticket()
        ticket.flow.go()
        pk = message(ticket).pk
        found = together([partial(cancel_message, pk)] * 2)
        errors += [one.error for one in found if one.error and not isinstance(one.error, TransitionNotAllowed)]

    assert errors == []


def test_what_was_prepared_is_taken_back_by_whoever_prepared_it(flow: Flow, ticket: Ticket) -> None:
    """
    A cancel while prepare hooks run lets failure callbacks know what was prepared.
    """
    booked: list[str] = []
    taken_back: list[Any] = []

    def book(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        Worker(lambda: fresh(ticket).flow.cancel_background(actor="customer")).result()
        booked.append("B1")
        context["booking"] = "B1"

    def take_back(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        taken_back.append(context.get("booking"))

    flow(work(prepare=[book], failure_callbacks=[take_back]))
    ticket.flow.go()

    run_out()

    assert booked == ["B1"]
    assert "B1" in taken_back


@pytest.mark.parametrize("ending", [Boom("boom"), Snooze(86_400)])
def test_cancel_of_a_running_attempt_ends_the_row_however_the_attempt_ends(
    flow: Flow, ticket: Ticket, ending: Exception
) -> None:
    """
    Who cancels running work does not wait for its retry pause.
    """
    if not connection.features.has_select_for_update:
        pytest.skip("while work runs nobody else can write")

    def cancelled_and_failing(instance: Any, **keywords: Any) -> None:
        assert Worker(lambda: fresh(ticket).flow.cancel_background(actor="customer")).result() is False
        raise ending

    flow(work(cancelled_and_failing))
    ticket.flow.go()

    run_available()
    run_available()

    assert (stored(ticket), message(ticket).outcome) == ("failed", "cancelled")


def test_circle_of_next_transitions_comes_to_an_end(flow: Flow, ticket: Ticket) -> None:
    """
    Declarations that lead round in a circle end somewhere, in the background as in a chain of calls.
    """
    flow(
        work(next_transition="back"),
        work(action="back", sources=["done"], target="new", next_transition="go"),
    )
    ticket.flow.go()

    assert run_available(limit=1000) < 1000


def test_callback_that_was_cancelled_as_it_ran_is_not_called_lost(
    flow: Flow, diary: Diary, ticket: Ticket, only_postgres: None
) -> None:
    """
    A callback's row that is cancelled while its hook runs ends as cancelled.
    """

    def cancelled(instance: Any, **keywords: Any) -> None:
        row = message(ticket, "callback")
        assert Worker(lambda: cancel_message(row.pk)).result() is False

    flow(work(callbacks=[cancelled]))
    ticket.flow.go()

    run_available()

    assert message(ticket, "callback").outcome == "cancelled"


def test_callback_behind_one_that_snoozes_waits_in_sync_mode(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Callbacks keep their order in sync mode also where one asks for a later try.
    """

    def snooze(instance: Any, **keywords: Any) -> None:
        raise Snooze(3600)

    flow(work(callbacks=[snooze, diary.hook("second")]))
    with sync_execution():
        ticket.flow.go()

    assert list(diary) == []


PROJECT = """
import os
import sys
import time
from datetime import timedelta
import django
from django.conf import settings

facts = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "TIME_ZONE": sys.argv[1] or None}
settings.configure(
    USE_TZ=sys.argv[2] == "aware",
    DATABASES={"default": facts},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["django_logic", "django_logic.background"],
)
# As a settings module does.
os.environ["TZ"] = settings.TIME_ZONE
time.tzset()
django.setup()
from django.core.management import call_command
from django.db import connection, models
from django.utils import timezone
from django_logic import Process, ProcessManager
from django_logic.background import BackgroundTransition, run_available


class Paper(models.Model):
    state = models.CharField(max_length=20, default="new")

    class Meta:
        app_label = "django_logic"


class PaperProcess(Process):
    process_name = "process"
    transitions = [BackgroundTransition("go", ["new"], "done", in_progress_state="busy")]


ProcessManager.bind_model_process(Paper, PaperProcess)
call_command("migrate", verbosity=0)
with connection.schema_editor() as editor:
    editor.create_model(Paper)
paper = Paper.objects.create()
seconds = float(sys.argv[3])
paper.process.go(**({"run_at": timezone.now() + timedelta(seconds=seconds)} if seconds else {}))
run_available()
paper.refresh_from_db()
print(paper.state)
"""


class TestProjectsWithOtherClocks:
    """
    A project without time zones, or whose database keeps another one, has its work done when it is due.
    """

    @pytest.mark.parametrize(
        ("zone", "kind", "seconds", "state"),
        [
            ("", "aware", 0, "done"),
            ("Europe/Berlin", "aware", 0, "done"),
            ("Europe/Berlin", "aware", -5, "done"),
            ("America/New_York", "aware", 1800, "busy"),
            ("", "naive", 0, "done"),
            ("", "naive", -5, "done"),
            ("", "naive", 1800, "busy"),
        ],
    )
    def test_row_runs_when_it_is_due(self, zone: str, kind: str, seconds: int, state: str) -> None:
        """
        On SQLite a row that is due runs, and one that is not waits.
        """
        command = [sys.executable, "-W", "ignore", "-c", PROJECT, zone, kind, str(seconds)]
        sources = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

        ended = subprocess.run(command, capture_output=True, text=True, env=sources, check=False)

        assert ended.stdout.strip() == state, ended.stderr[-500:]
