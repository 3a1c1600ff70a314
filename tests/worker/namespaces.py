"""
Run a worker as the first process of a namespace of its own, as a container does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.worker.harness import ROOT, Worker, database_facts, until
from tests.worker_app.process import QUEUE

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")


def can_unshare() -> bool:
    """
    Tell whether this process may make a namespace.
    """
    if shutil.which(UNSHARE[0]) is None:
        return False
    return subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0


@contextmanager
def first_process(settings: Mapping[str, Any]) -> Iterator[tuple[Worker, int]]:
    """
    Start `dl_worker` as process 1; give the program that waits for it, and the worker's pid as it is seen here.
    """
    name = f"dl-{uuid.uuid4().hex[:12]}"
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in (str(ROOT), str(ROOT / "src")) if path in sys.path),
        "PYTHONUNBUFFERED": "1",
        # In its namespace the parent of the first process is 0.
        "DL_WORKER_STARTER": "0",
        "DL_WORKER_SETTINGS": json.dumps({"DATABASES": database_facts(name, {}), **settings}),
    }
    command = [*UNSHARE, sys.executable, "-m", "tests.worker.manage", "dl_worker", "--queues", QUEUE]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--health-file", str(folder / "health")],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Worker(process, folder, name)
    try:
        running.wait_ready()
        (pid,) = until(running.children)
        yield running, pid
    except BaseException as error:
        error.add_note(f"The log of the worker:\n{running.log[-6000:]}")
        raise
    finally:
        running.close()
        shutil.rmtree(folder)
