from __future__ import annotations
import time, pytest
from tests.worker.asking import ask, is_all_done
from tests.worker.harness import until, worker
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]
@pytest.mark.parametrize("n", range(4))
def test_x(n, ledger):
    t=time.monotonic(); job=ask("quick"); a=time.monotonic()
    with worker() as w:
        b=time.monotonic()
        w.wait_ready(); c=time.monotonic()
        until(is_all_done); d=time.monotonic()
        print(w.log)
    e=time.monotonic()
    print(f"ask {a-t:.2f} popen {b-a:.2f} ready {c-b:.2f} done {d-c:.2f} close {e-d:.2f}")
