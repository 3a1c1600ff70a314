"""
Run the command `publish` once the receiver listens, which it would else look for again only after a while.
"""

from __future__ import annotations

import os
import socket
import time

from django.core.management import execute_from_command_line

GLANCE_SECONDS = 0.02


def wait_for_receiver() -> None:
    """
    Wait until somebody takes connections; who started this process ends it if nobody does.
    """
    address = ("127.0.0.1", int(os.environ["BENCH_STOMP_PORT"]))
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(address) == 0:
                return
        time.sleep(GLANCE_SECONDS)


if __name__ == "__main__":
    wait_for_receiver()
    execute_from_command_line(["django", "publish"])
