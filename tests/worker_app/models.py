"""
An object that background work is done for, and what that work writes in its transaction.
"""

from __future__ import annotations

from typing import Any

from django.db import models


class Job(models.Model):
    """
    Something that workers move.
    """

    state = models.CharField(max_length=20, default="new")
    #: What `JobProcess` is bound as.
    process: Any


class Effect(models.Model):
    """
    A write of one attempt, in the attempt's transaction: there is one for each success and none for a failure.

    No foreign key: a reference would lock the job's row, and the tests are about who holds which lock.
    """

    job_id = models.BigIntegerField(db_index=True)
    transition_id = models.UUIDField()
    action = models.CharField(max_length=50)
    pid = models.IntegerField()
