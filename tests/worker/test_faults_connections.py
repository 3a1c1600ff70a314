"""
Prove that children share no connection with their parent, whatever the driver, the pool and the encryption are.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import django
import psycopg
import pytest
from django.db import connection

from example.services import ServiceMissing
from tests.worker.altered import UPKEEP_EVERY, altered
from tests.worker.asking import ask, ask_at_once, is_all_done
from tests.worker.conftest import skip_or_fail
from tests.worker.harness import row, sql, until, worker
from tests.worker.invariants import violations
from tests.worker.private import PrivateServer, private_server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]
