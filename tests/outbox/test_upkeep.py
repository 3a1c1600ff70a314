"""
Test what is done about messages beside delivering them: putting dead ones back, deleting old ones, counting, plans.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_logic.outbox import relay
from django_logic.outbox.metrics import figures
from django_logic.outbox.models import DeliveryState, InboxEntry, OutboxDelivery, OutboxMessage, OutboxTally
from django_logic.outbox.relay import claim as claims
from django_logic.outbox.relay import purging
from django_logic.outbox.relay.claim import claim
from django_logic.testing import advance
from tests.outbox.deliveries import SUBSCRIBERS, change, fates, row, rows_of, write

pytestmark = pytest.mark.django_db(transaction=True)


class TestReplay:
    """
    Dead messages go back in the order in which they were written.
    """

    def test_dead_key_flows_again_in_order(self) -> None:
        """
        What was dead comes before what waited behind it, with all its attempts.
        """
        first, second, other = write("a", "a", "b")
        change(first, state=DeliveryState.DEAD, attempts=10, error="no")
        assert rows_of(claim("default", SUBSCRIBERS)) == [[other]]

        assert relay.replay() == 1

        assert fates(first) == [("pending", 0)]
        (run,) = rows_of(claim("default", SUBSCRIBERS))
        assert run[0] == first
        assert run[1:] in ([second], [])  # one after the other where the database can't say it in one statement

    @pytest.mark.parametrize(
        ("chosen", "found"),
        [({"topic": "t.one"}, [0]), ({"key": "b"}, [1]), ({"destination": SUBSCRIBERS}, [0, 1]), ({"topic": "no"}, [])],
    )
    def test_only_what_was_asked_for_goes_back(self, chosen: dict[str, str], found: list[int]) -> None:
        """
        By topic, key or destination; what is not dead stays as it is.
        """
        pks = [*write("a", topic="t.one"), *write("b", topic="t.two"), *write("c", topic="t.one")]
        change(*pks[:2], state=DeliveryState.DEAD, attempts=3)

        assert relay.replay(**chosen) == len(found)

        assert [place for place, pk in enumerate(pks[:2]) if row(pk).state == "pending"] == found

    def test_rows_are_chosen_by_key_and_only_the_dead_change(self) -> None:
        """
        A list of rows with one that was sent: that one stays sent.
        """
        dead, sent = write("a", "b")
        change(dead, state=DeliveryState.DEAD, attempts=3)
        change(sent, state=DeliveryState.SENT, is_open=False, attempts=1)

        assert relay.replay([dead, sent]) == 1

        assert fates() == [("pending", 0), ("sent", 1)]


class TestPurge:
    """
    What everybody has got goes in bounded batches; what somebody waits for stays.
    """

    def test_pending_and_dead_stay_whatever_their_age(self) -> None:
        """
        Only what was sent longer ago than the days it is kept is deleted, with its message.
        """
        old = write("a", "b", "c")
        change(old[0], state=DeliveryState.DEAD)
        relay.drain("default")
        (pending,) = write("a")
        advance(days=8)
        (young,) = write("d")
        relay.drain("default")

        assert relay.purge() == 4

        assert [one.pk for one in OutboxDelivery.objects.order_by("id")] == [old[0], pending, young]
        assert OutboxMessage.objects.count() == 3

    def test_inbox_knows_longer_than_messages_are_kept(self, settings: Any) -> None:
        """
        What a consumer has taken it knows for days of their own, even where messages go at once.
        """
        settings.DJANGO_LOGIC = {"OUTBOX_KEEP_DAYS": 0, "OUTBOX_INBOX_DAYS": 10}
        InboxEntry.objects.create(consumer="c", message_id="old")
        advance(days=8)
        InboxEntry.objects.create(consumer="c", message_id="young")

        relay.purge()
        known = set(InboxEntry.objects.values_list("message_id", flat=True))
        advance(days=3)
        relay.purge(days=100)

        assert known == {"old", "young"}
        assert set(InboxEntry.objects.values_list("message_id", flat=True)) == {"young"}

    def test_batches_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        No transaction deletes more deliveries than a batch holds, and all go in the end.
        """
        monkeypatch.setattr(purging, "BATCH", 3)
        write(*"abcdefgh")
        relay.drain("default")
        advance(days=8)

        found = [purging.purge_batch("default") for _count in range(4)]

        assert found == [6, 6, 4, 0]

    def test_message_goes_with_its_last_delivery(self, settings: Any) -> None:
        """
        A message that one destination still waits for stays for it.
        """
        backend = {"BACKEND": "django_logic.outbox.publishers.local.Subscribers"}
        settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"one": backend, "two": backend}}
        OutboxMessage.objects.create(topic="t", key="a")
        relay.drain("default", only=["one"])
        advance(days=8)

        assert relay.purge() == 1

        assert OutboxMessage.objects.count() == 1
        assert relay.drain("default") == 1


class TestFigures:
    """
    Figures tell what waits, for how long, and what is dead, by destination.
    """

    def test_figures_count_by_state(self) -> None:
        """
        Behind a dead one others wait and grow old; dead ones that let others pass count, too; attempts are tallied.
        """
        dead, _behind, passed, _sent = write("a", "a", "b", "c")
        change(dead, state=DeliveryState.DEAD)
        change(passed, state=DeliveryState.DEAD, is_open=False)
        relay.drain("default")
        OutboxTally.objects.create(destination=SUBSCRIBERS, fate="sent", count=1)
        OutboxTally.objects.create(destination="gone", fate="failed", count=2)
        advance(minutes=5)

        with CaptureQueriesContext(connection) as queries:
            ours, gone = figures()

        assert (ours.pending, ours.dead, ours.attempts) == (1, 2, {"sent": 1})
        assert 299 < ours.oldest_seconds < 400
        assert (gone.destination, gone.pending, gone.attempts) == ("gone", 0, {"failed": 2})
        assert len(queries) == 3


def test_claim_reads_open_rows_only(only_postgres: None) -> None:
    """
    With many rows that are sent, a claim goes through the index of open ones and reads as many rows as it walks keys.
    """
    with connection.cursor() as cursor:
        cursor.execute(FILL.format(table=OutboxDelivery._meta.db_table), {"sent": 50_000, "open": 500})
        cursor.execute(f"ANALYZE {OutboxDelivery._meta.db_table}")
        statement = "EXPLAIN (ANALYZE, FORMAT JSON) " + claims.composed(claims.CLAIM, claims.QUIET)
        values = {"destination": SUBSCRIBERS, "token": "6a0c5fc0-d333-4d68-bed2-b93afa73b63a", "relay": "", "lease": 60}
        cursor.execute(statement, {**values, "aggregate": "", "key": "", "keys": 100, "run": 10, "rows": 200})
        (plan,) = cursor.fetchone()
    nodes = list(nodes_of((plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]))

    on_deliveries = [node for node in nodes if node.get("Relation Name") == OutboxDelivery._meta.db_table]
    indexes = {node["Index Name"] for node in on_deliveries if "Index Name" in node}
    read = sum(
        node["Actual Rows"] * node["Actual Loops"] for node in on_deliveries if node["Node Type"] != "ModifyTable"
    )
    assert "dl_outbox_open" in indexes
    assert not [node for node in on_deliveries if node["Node Type"] == "Seq Scan"]
    assert read < 2_000


#: Sent and open deliveries of as many keys.
FILL = """
INSERT INTO {table} (message_id, destination, aggregate, key, topic, state, is_open, attempts, created, next_attempt_at,
    relay, error, handled)
SELECT gen_random_uuid(), 'subscribers', 'a.b', n::text, 't', CASE WHEN n <= %(sent)s THEN 'sent' ELSE 'pending' END,
    n > %(sent)s, 0, now(), now(), '', '', '[]' FROM generate_series(1, %(sent)s + %(open)s) n
"""


def nodes_of(plan: dict[str, Any]) -> Any:
    """
    Yield every node of a plan.
    """
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes_of(inner)
