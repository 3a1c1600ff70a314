"""
Keep one server alive for exactly as long as its owner lives.

The owner starts this module as a process of its own and holds the other end of its standard input.
However the owner goes (return, Ctrl-C, SIGTERM, SIGKILL), that pipe closes; the server is then ended
by its own process object and its folder is removed. What is *not* done here: choosing binaries or options.
"""

from __future__ import annotations

import json
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

LOG_NAME = "server.log"
# While this file is in the folder, a server that is to be revived stays down.
DOWN_NAME = "down"
STOP_SECONDS = 15
POLL_SECONDS = 0.2


def keep(folder: Path) -> int:
    """
    Run the plan read from standard input until that input closes.

    A server that ended by itself is started again where the plan says so.
    Shape: an exit status; 1 when the server ended by itself for good, with the end of its log printed.
    """
    line = sys.stdin.readline()
    if not line:
        return 0
    plan = json.loads(line)
    log_path = folder / LOG_NAME
    with log_path.open("ab") as log:
        for command in plan["prepare"]:
            if _spawn(command, plan, folder, log).wait() != 0:
                return _report(log_path)
            if _owner_is_gone(0):
                return 0
        server = _spawn(plan["serve"], plan, folder, log)
        try:
            while not _owner_is_gone(POLL_SECONDS):
                if server.poll() is None or (folder / DOWN_NAME).exists():
                    continue
                if not plan["is_revived"]:
                    return _report(log_path)
                server = _spawn(plan["serve"], plan, folder, log)
            return 0
        finally:
            _stop(server, plan["stop_signal"])


def _spawn(command: list[str], plan: dict[str, Any], folder: Path, log: Any) -> subprocess.Popen[bytes]:
    identity = {"user": plan["uid"], "group": plan["gid"], "extra_groups": []} if plan["uid"] is not None else {}
    return subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **identity
    )


def _owner_is_gone(patience: float) -> bool:
    return bool(select.select([sys.stdin], [], [], patience)[0])


def _stop(server: subprocess.Popen[bytes], stop_signal: int) -> None:
    # A server that is still starting loses a signal that comes before its handlers, so it is told again.
    for _attempt in range(int(STOP_SECONDS / POLL_SECONDS)):
        if server.poll() is not None:
            return
        server.send_signal(stop_signal)
        try:
            server.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    server.kill()
    server.wait()


def _report(log_path: Path) -> int:
    print("".join(log_path.read_text(errors="replace").splitlines(keepends=True)[-20:]), flush=True)
    return 1


def main() -> int:
    """
    Keep the server of the folder named on the command line, then remove that folder.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = Path(sys.argv[1])
    try:
        return keep(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
