"""
Test what `dl_relay` answers: to monitoring, to scripts and to slips of the hand.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_logic.clock import FromNow
from django_logic.outbox import relay as relays
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from tests.outbox.relays import OFTEN, SELDOM, ask, deliveries, is_all_sent, relay, run_relay, tickets
from tests.outbox.seen import sequences, sights
from tests.worker.looks import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sights_are_kept")]

#: Dead at the first failure.
ONCE = {"OUTBOX_MAX_ATTEMPTS": 1}


class TestCheck:
    """
    It says what waits, and its status whether that is too old.
    """

    def test_status_tells_that_nobody_delivers(self) -> None:
        """
        Without any relay the oldest event grows old, which nobody else would notice. Source: wolverine#3954.
        """
        (ticket,) = tickets(1)
        nothing = run_relay("--check", "--older-than", "0")
        ask(ticket, "one")
        young = run_relay("--check")
        OutboxDelivery.objects.update(created=FromNow(-400))
        old, patient = run_relay("--check"), run_relay("--check", "--older-than", "1000")
        run_relay("--drain")
        delivered = run_relay("--check", "--older-than", "0")

        assert nothing == (0, "subscribers: 0 pending, the oldest for 0 s, 0 dead")
        assert young[0] == patient[0] == 0
        assert old[0] == 1
        assert "1 pending, the oldest for 4" in old[1]
        assert old[1].splitlines()[-1].startswith("The oldest pending event has waited for 4")
        assert delivered[0] == 0

    def test_only_the_chosen_destinations_are_judged(self) -> None:
        """
        What another destination waits for does not make this one late.
        """
        backend = {"BACKEND": "django_logic.outbox.publishers.local.Subscribers"}
        logic = {"OUTBOX_PUBLISHERS": {"quiet": {**backend, "TOPICS": ["nothing"]}, "subscribers": backend}}
        (ticket,) = tickets(1)
        ask(ticket, "one")
        OutboxDelivery.objects.update(created=FromNow(-400))

        chosen = run_relay("--check", "--destinations", "quiet", logic=logic)
        both = run_relay("--check", logic=logic)

        assert chosen == (0, "quiet: 0 pending, the oldest for 0 s, 0 dead")
        assert both[0] == 1

    def test_figures_are_json_where_asked_for(self) -> None:
        """
        A program reads the same figures.
        """
        (ticket,) = tickets(1)
        ask(ticket, "one", "two")

        status, said = run_relay("--check", "--json")

        (figures,) = json.loads(said)
        assert status == 0
        assert (figures["destination"], figures["pending"], figures["dead"]) == ("subscribers", 2, 0)


class TestDrain:
    """
    It delivers what is due, and ends.
    """

    @pytest.mark.parametrize("flag", ["--drain", "--once"])
    def test_everything_due_is_delivered_in_order(self, flag: str) -> None:
        """
        More than one claim takes, of more objects than one claim takes.
        """
        hot, *cold = tickets(130)
        ask(hot, *["one"] * 25)
        for ticket in cold:
            ask(ticket, "one")

        answer = run_relay(flag)

        assert answer == (0, "154 events delivered.")
        assert sequences(hot.pk) == list(range(1, 26))
        assert run_relay(flag) == (0, "0 events delivered.")

    def test_event_that_fails_is_left_for_later(self) -> None:
        """
        It waits for its pause, with what follows it; the status is 0.
        """
        failing, other = tickets(2)
        ask(failing, "fail", "two")
        ask(other, "one")

        status, said = run_relay("--drain")

        assert (status, said.splitlines()[-1]) == (0, "1 event delivered.")
        assert [(row.state, row.attempts) for row in deliveries(failing)] == [("pending", 1), ("pending", 0)]


class TestReplay:
    """
    It puts dead events back, in their order.
    """

    def test_dead_events_are_delivered_in_their_order(self) -> None:
        """
        A key that waits behind a dead event goes on with it, woken at once.
        """
        first, second = tickets(2)
        for ticket in (first, second):
            ask(ticket, "one", "fail", "three")
        run_relay("--drain", logic=ONCE)

        with relay(*SELDOM, logic=ONCE) as running:
            running.wait_ready()
            one = run_relay("--replay", "--topic", "ticket.new", "--key", str(first.pk))
            until(lambda: sequences(first.pk).count(2) == 2)
            until(lambda: deliveries(first)[1].state == "dead")
            left = deliveries(second)[1].state

        assert one == (0, "1 dead event put back.")
        assert left == "dead"
        assert run_relay("--replay") == (0, "2 dead events put back.")
        assert run_relay("--replay", "--topic", "no.such") == (0, "0 dead events put back.")

    def test_what_waited_behind_follows(self) -> None:
        """
        Once the cause is mended, the dead one and its followers are delivered.
        """
        (ticket,) = tickets(1)
        ask(ticket, "one", "fail", "three")
        run_relay("--drain", logic=ONCE)
        OutboxDelivery.objects.filter(state="dead").update(handled=["tests.outbox.relay_app.subscribers.look"])

        run_relay("--replay")
        drained = run_relay("--drain")

        assert drained == (0, "2 events delivered.")
        assert is_all_sent()()
        assert sequences(ticket.pk) == [1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "logic", "said"),
    [
        (["--destinations", "subscribrs"], {}, "OUTBOX_PUBLISHERS has no 'subscribrs'; it has subscribers."),
        (["--poll", "often"], {}, "--poll takes a number of seconds; found 'often'."),
        (["--poll", "0"], {}, "--poll must be a number of seconds from 0.01; found 0."),
        (["--poll", "1e10"], {}, "--poll must be a number of seconds up to 3155760000; found 1e10."),
        (["--grace", "-1"], {}, "--grace must be a number of seconds from 0; found -1."),
        (["--grace", "inf"], {}, "--grace must be a number of seconds up to 3155760000; found inf."),
        (["--grace", "nan"], {}, "--grace must be a number of seconds from 0; found nan."),
        (["--check", "--older-than", "x"], {}, "--older-than takes a number of seconds; found 'x'."),
        (["--drain", "--check"], {}, "are different tasks. Choose one."),
        (["--drain", "--topic", "a"], {}, "--topic is a part of --replay. Add that, or leave it out."),
        (["--check", "--key", "1"], {}, "--key is a part of --replay. Add that, or leave it out."),
        (["--json"], {}, "--json is a part of --check. Add that, or leave it out."),
        (["--database", "defualt"], {}, "--database: settings.DATABASES has no 'defualt'."),
        (["--listen-database", "direct"], {}, "--listen-database: settings.DATABASES has no 'direct'."),
        ([], {"OUTBOX_RELAY": "none"}, "somebody else delivers events. Use 'own'."),
        ([], {"OUTBOX_PUBLISHERS": {"x": {"BACKEND": "no.such.Publisher"}}}, "no.such.Publisher can't be loaded"),
        (["--drain"], {"OUTBOX_PUBLISHERS": {"x": {"BACKEND": "no.such.Publisher"}}}, "can't be loaded"),
    ],
)
def test_wrong_usage_is_told_in_one_line(arguments: list[str], logic: dict[str, Any], said: str) -> None:
    """
    What can't work ends with status 1 and one line that says what was found.
    """
    status, log = run_relay(*arguments, logic=logic)

    assert status == 1
    assert said in log.splitlines()[-1]
    assert "Traceback" not in log


def test_option_nobody_knows_is_refused() -> None:
    """
    The status is that of every command line that is no command line.
    """
    status, log = run_relay("--qeues", "x")

    assert status == 2
    assert "unrecognized arguments: --qeues" in log.splitlines()[-1]


def test_upkeep_that_finds_nothing_old_or_something_goes_on() -> None:
    """
    A relay deletes what is old beside its work, and lives on where nothing is.
    """
    (ticket,) = tickets(1)
    ask(ticket, "one", "two")
    often = {"django_logic.outbox.relay.members.PURGE_EVERY": 0.01}

    with relay(*OFTEN, logic={"OUTBOX_KEEP_DAYS": 0}, constants=often) as running:
        until(lambda: len(sights()) == 2)
        until(lambda: not OutboxMessage.objects.exists())
        ask(ticket, "three")
        until(lambda: len(sights()) == 3)
        until(lambda: not OutboxMessage.objects.exists())
        assert running.is_running()

    assert relays.purge("default") == 0
    assert sequences(ticket.pk) == [1, 2, 3]


def test_purge_deletes_what_is_old_where_no_relay_of_ours_runs() -> None:
    """
    --purge works without a relay, for projects in which somebody else reads the messages, and leaves what is young.
    """
    OutboxMessage.objects.create(topic="old", occurred_at=timezone.now() - timedelta(days=8))
    OutboxDelivery.objects.all().delete()
    (ticket,) = tickets(1)
    ask(ticket, "young")

    answer = run_relay("--purge", logic={"OUTBOX_RELAY": "none"})

    assert answer == (0, "1 rows deleted.")
    assert [message.topic for message in OutboxMessage.objects.all()] == ["ticket.new"]
