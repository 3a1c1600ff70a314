from tests.worker.test_faults_database import *
import time
class TestX:
    def test_y(self, own_server):
        jobs = spent_rows(250, "elsewhere")
        with worker(settings=altered({UPKEEP_EVERY: 0.5, **SHORT_LEASE})) as w:
            until(lambda: completed() > 10, despite=AWAY)
            with own_server.down():
                time.sleep(2)
                print("while away", w.log.count("could not be finished"), w.log.count("has to wait"), len(w.log.splitlines()))
            t=time.monotonic()
            until(lambda: completed() == 250, 60, despite=AWAY); print("all", time.monotonic()-t)
            print(w.log.count("could not be finished"), w.log.count("Upkeep has to wait"))
