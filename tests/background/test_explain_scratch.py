from __future__ import annotations
import pytest
from django.core.management import call_command
from django_logic.background import run_available
from django_logic.background.models import TransitionMessage
from tests.worker_app.models import Job
pytestmark = pytest.mark.django_db(transaction=True)

def test_scratch(capsys):
    jobs = [Job.objects.create() for _ in range(4)]
    jobs[0].process.fail_and_pause(times=9)
    jobs[1].process.quick(delay=100)
    jobs[2].process.refuse()
    jobs[3].process.fail_after(times=9)
    for _ in range(5): run_available()
    for r in TransitionMessage.objects.all(): print(r.pk, r.label, r.outcome)
    call_command("dl_transitions")
    call_command("dl_transitions", "--json", "--queues", " work , sidd")
    a = {r.transition_name+r.kind: r.pk for r in TransitionMessage.objects.all()}
    print(a)
    for args in (["--send", str(a["fail_and_pausetransition"])], ["--send", "99"], ["--send", "x"], ["--retry", str(a["refusetransition"])], ["--retry", str(a["fail_aftercallback"]-0)], ["--cancel", str(a["quicktransition"])]):
        try: call_command("dl_transitions", *args)
        except Exception as e: print(type(e), e)
    call_command("dl_transitions")
