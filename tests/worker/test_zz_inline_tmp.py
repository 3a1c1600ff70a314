import pytest, time, os
from tests.worker.harness import *
from tests.worker.invariants import violations
from tests.worker_app.models import Job
from django_logic.background import attempt
pytestmark=pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("action,kw", [("quick",{}),("fail",{}),("fail",{"times":9}),("refuse",{}),("snooze",{}),("spawn",{}),("eat",{}),("act",{}),("aside",{}),("urgent",{}),("follow",{}),("fail_after",{}),("leave_a_thread",{})])
def test_a(action,kw,ledger):
    job=Job.objects.create(); getattr(job.process,action)(**kw)
    for _ in range(40):
        o=open_rows()
        if not o: break
        print(attempt.run(o[0].pk))
    for e in ledger.entries(): print(e)
    assert violations([job]) == []
    print(job.state, row(job).__dict__)
