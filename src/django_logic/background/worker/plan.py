"""
What a worker was told to do: its queues, its children, its limits.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from uuid import UUID, uuid4

__all__ = ["WorkerPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """
    Hold the options of one worker; times in seconds.
    """

    queues: tuple[str, ...]
    concurrency: int = 1
    alias: str = "default"
    #: Where LISTEN goes, past a pooler that would swallow it; None = where everything else goes.
    listen_alias: str | None = None
    poll: float = 5.0
    grace: float = 30.0
    is_draining: bool = False
    health_file: str | None = None
    max_attempts_per_child: int = 1000
    #: By how many MiB a child may grow beyond what it had after its first attempts; 0 = without end.
    max_growth: int = 256
    code_version: str = ""
    #: Processes of other apps to keep beside the children, by the names they registered.
    companions: tuple[str, ...] = ()
    name: str = ""
    worker_id: UUID = field(default_factory=uuid4)
    host: str = field(default_factory=socket.gethostname)

    @property
    def label(self) -> str:
        """
        Return how rows name the worker.
        """
        return self.name or f"{self.host}/{str(self.worker_id)[:8]}"
