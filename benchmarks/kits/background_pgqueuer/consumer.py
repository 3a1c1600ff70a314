"""
The worker process. It starts through the library's own calls, since ``pgq run`` fails with the newest typer.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import asyncpg
import django
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

django.setup()

from kits.background_jobs.moves import finish  # noqa: E402 (models need Django to be ready)


async def main() -> None:
    """
    Work until the process is ended; jobs run Django code in a thread, one at a time.
    """
    connection = await asyncpg.connect()
    worker = PgQueuer(AsyncpgDriver(connection))
    # One thread keeps one connection of Django, as a worker process of the others does.
    threads = ThreadPoolExecutor(1)

    async def run(job: Job, *, has_write: bool) -> None:
        work = partial(finish, int(job.payload or b"0"), has_write=has_write)
        await asyncio.get_running_loop().run_in_executor(threads, work)

    @worker.entrypoint("approve")
    async def approve(job: Job) -> None:
        await run(job, has_write=False)

    @worker.entrypoint("approve_with_write")
    async def approve_with_write(job: Job) -> None:
        await run(job, has_write=True)

    await worker.run()


if __name__ == "__main__":
    # The loop the library's own command prefers.
    uvloop.run(main())
