"""
The tasks.
"""

from __future__ import annotations

from procrastinate.contrib.django import app

from kits.background_jobs.moves import finish


@app.task(queue="bench")
def approve(key: int) -> None:
    """
    Move an order without further work.
    """
    finish(key, has_write=False)


@app.task(queue="bench")
def approve_with_write(key: int) -> None:
    """
    Move an order after one database write.
    """
    finish(key, has_write=True)
