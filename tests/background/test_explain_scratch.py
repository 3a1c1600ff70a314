from __future__ import annotations
import threading, time
import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django_logic.background import run_available, claim
from django_logic.background.models import TransitionMessage, Worker
from django_logic.background.explain import explain, tally, rows_with, Code
from tests.worker_app.models import Job

pytestmark = pytest.mark.django_db(transaction=True)


def test_scratch():
    jobs = [Job.objects.create() for _ in range(4)]
    for j in jobs:
        j.process.quick()
    jobs[0].process
    a = [r.pk for r in TransitionMessage.objects.order_by("pk")]
    claim.take("default", a[0])
    other = connection.copy()
    with other.cursor() as c:
        c.execute("begin")
        c.execute("select 1 from django_logic_background_transitionmessage where id=%s for share", [a[1]])
        o2 = connection.copy()
        with o2.cursor() as c2:
            c2.execute("begin")
            c2.execute("select 1 from django_logic_background_transitionmessage where id=%s for share", [a[1]])
            with CaptureQueriesContext(connection) as q:
                for e in explain():
                    print(e)
            print(len(q))
            for t in tally():
                print(t)
            for code in Code:
                print(code, list(rows_with(code).values_list("pk", flat=True)))
        o2.close()
    other.close()
