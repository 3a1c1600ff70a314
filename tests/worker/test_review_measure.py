from __future__ import annotations
import time, pytest
from tests.worker.test_review import *
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]

def test_herd(ledger):
    for n in (1, 4, 16):
        with worker(concurrency=n, args=["--poll","60"]) as running:
            running.wait_ready(); time.sleep(2)
            b = committed(); time.sleep(3); idle = committed()-b
            b = committed()
            for _ in range(20):
                notify("default", QUEUE); time.sleep(0.1)
            time.sleep(1)
            print("\nchildren", n, "idle 3s:", idle, "per notify:", (committed()-b)/20)

def test_idle_cost(ledger):
    for n in (1, 8):
        with worker(concurrency=n) as running:
            running.wait_ready(); time.sleep(3)
            b = committed(); time.sleep(20); print("\nidle statements/s with", n, "children, poll 5:", (committed()-b)/20)

def test_spin(gate, ledger):
    ask("wait", gate=str(gate.path))
    with worker(args=["--poll", "60"]) as running:
        running.wait_ready(); gate.arrival()
        for _ in range(10000):
            notify("default", QUEUE)
        b = committed()
        gate.let_go(5); until(is_all_done)
        for _ in range(40):
            time.sleep(1); c = committed(); print(c-b, end=" ", flush=True)
            if c - b < 5: break
            b = c
