"""
Prove that foreign task queues can run background work, and what is said where they are not installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
from django import VERSION
from django.core.exceptions import ImproperlyConfigured

from django_logic.background.models import TransitionMessage
from tests.app.hooked import stored
from tests.app.models import Ticket
from tests.background.flows import Flow, new_ticket, work

HAS_CELERY = find_spec("celery") is not None
HAS_TASKS = VERSION >= (6, 0)
needs_celery = pytest.mark.skipif(not HAS_CELERY, reason="Celery is not installed")
needs_tasks = pytest.mark.skipif(not HAS_TASKS, reason="django.tasks came with Django 6.0")
#: Import a name where Celery can't be found, in a process that has loaded nothing yet.
WITHOUT_CELERY = """
import sys
sys.modules["celery"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "celery" else found(name, package)
import django
django.setup()
try:
    from django_logic.contrib.tasks import {name}
except Exception as error:
    print(type(error).__name__, error)
else:
    print("imported", {name}.__class__.__name__)
"""


@pytest.fixture
def tickets(flow: Flow) -> list[Ticket]:
    """
    Give objects whose work waits in the queues ``a``, ``a`` and ``b``.
    """
    flow(work(queue="a"), work(action="other", queue="b"))
    made = [new_ticket() for _ in range(3)]
    for ticket, action in zip(made, ("go", "go", "other"), strict=True):
        getattr(ticket.flow, action)()
    return made


def states(tickets: list[Ticket]) -> list[str]:
    """
    Return the states of objects in the database.
    """
    return [stored(ticket) for ticket in tickets]


def celery_task() -> Any:
    """
    Return Celery's task, in an app that runs tasks where they are sent.
    """
    from_celery: Any = pytest.importorskip("celery")
    app = from_celery.Celery("tests", broker="memory://", set_as_current=True)
    app.conf.task_always_eager = True
    app.set_default()
    tasks: Any = pytest.importorskip("django_logic.contrib.tasks")
    return tasks.run_background_in_celery


@needs_celery
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("arguments", "count", "left"),
    [
        ({}, 3, ["done", "done", "done"]),
        ({"queues": ["b"]}, 1, ["busy", "busy", "done"]),
        ({"queues": " b , nobody"}, 1, ["busy", "busy", "done"]),
        ({"limit": 1}, 1, None),
    ],
)
def test_celery_task_runs_what_is_due(
    tickets: list[Ticket], arguments: dict[str, Any], count: int, left: list[str] | None
) -> None:
    """
    The task runs rows of the queues it is given, at most so many, and returns how many.
    """
    result = celery_task().delay(**arguments)

    assert result.get() == count
    assert left in (None, states(tickets))
    assert TransitionMessage.objects.open().count() == 3 - count


@needs_celery
@pytest.mark.django_db(transaction=True)
def test_celery_task_that_runs_twice_does_nothing_twice(tickets: list[Ticket]) -> None:
    """
    The claim is in the database: a task that was sent twice finds nothing the second time.
    """
    task = celery_task()

    assert [task.delay().get() for _ in range(2)] == [3, 0]


@needs_celery
def test_celery_finds_the_task_by_name() -> None:
    """
    A schedule can name it: ``django_logic.run_background``.
    """
    task = celery_task()

    assert task.name == "django_logic.run_background"
    assert task.name in task.app.tasks


@needs_tasks
@pytest.mark.django_db(transaction=True)
def test_django_task_runs_what_is_due(tickets: list[Ticket]) -> None:
    """
    Django's own tasks do the same; the immediate backend shows it.
    """
    tasks: Any = pytest.importorskip("django_logic.contrib.tasks")

    result = tasks.run_background.enqueue(queues=["a"], limit=5)

    assert (str(result.status), result.return_value) == ("SUCCESSFUL", 2)
    assert states(tickets) == ["done", "done", "busy"]


@needs_tasks
def test_django_task_can_be_found_by_a_worker_elsewhere() -> None:
    """
    A task backend imports the task by its path.
    """
    tasks: Any = pytest.importorskip("django_logic.contrib.tasks")
    module, _, name = tasks.run_background.module_path.rpartition(".")

    assert getattr(sys.modules[module], name) is tasks.run_background


@needs_tasks
@pytest.mark.parametrize(("queues", "expected"), [(["web", "batch"], "batch"), ([], "default"), (None, "default")])
def test_django_task_is_made_for_a_queue_that_the_backend_takes(queues: Any, expected: str) -> None:
    """
    A project whose backend takes no queue called default can import the task all the same.
    """
    entry = {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"}
    if queues is not None:
        entry["QUEUES"] = queues
    code = f"""
import json
import django
from django.conf import settings
from tests import settings as own
own.TASKS = {{"default": json.loads({json.dumps(json.dumps(entry))})}}
django.setup()
from django_logic.contrib.tasks import run_background
print(run_background.queue_name)
"""

    assert in_a_process(code) == expected


def in_a_process(code: str) -> str:
    """
    Run code in a fresh process and return what it prints.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


@pytest.mark.skipif(HAS_TASKS, reason="Django has its own tasks here")
@pytest.mark.skipif(not HAS_CELERY, reason="without Celery the module can't be imported at all")
def test_django_task_without_django_6_says_so() -> None:
    """
    Where Django is older, asking for its task is answered with the versions.
    """
    tasks: Any = pytest.importorskip("django_logic.contrib.tasks")

    with pytest.raises(ImproperlyConfigured, match=r"run_background needs Django 6\.0 or newer; found \d"):
        _ = tasks.run_background


@pytest.mark.skipif(HAS_TASKS, reason="Django has its own tasks here")
def test_module_without_either_says_what_it_needs() -> None:
    """
    Without Django 6 and without Celery the import fails with what to install and what to use instead.
    """
    told = in_a_process(WITHOUT_CELERY.format(name="run_background"))

    assert told.startswith("ImproperlyConfigured django_logic.contrib.tasks needs Django 6.0 or newer; found ")
    assert "or Celery, which is not installed: pip install 'django-logic[celery]'" in told
    assert "django_logic.background.run_available()" in told


@needs_tasks
def test_celery_task_without_celery_says_so() -> None:
    """
    Django's task can be had without Celery; Celery's can't.
    """
    told = in_a_process(WITHOUT_CELERY.format(name="run_background_in_celery"))
    other = in_a_process(WITHOUT_CELERY.format(name="run_background"))

    assert told.startswith("ImproperlyConfigured django_logic.contrib.tasks.run_background_in_celery needs Celery")
    assert other == "imported Task"


def test_unknown_name_is_an_attribute_error() -> None:
    """
    A slip of the pen is no missing package.
    """
    tasks: Any = pytest.importorskip("django_logic.contrib.tasks")

    with pytest.raises(AttributeError, match="has no attribute 'run_foreground'"):
        _ = tasks.run_foreground


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("prometheus", "prometheus_client", "prometheus"), ("opentelemetry", "opentelemetry", "opentelemetry")],
)
def test_contribution_without_its_package_says_what_to_install(module: str, package: str, extra: str) -> None:
    """
    What needs another project's package names it and the extra that brings it.
    """
    code = f"""
import sys
sys.modules[{package!r}] = None
import django
django.setup()
try:
    import django_logic.contrib.{module}
except Exception as error:
    print(type(error).__name__, error)
"""

    told = in_a_process(code)

    assert told.startswith(f"ImproperlyConfigured django_logic.contrib.{module} needs {package}")
    assert told.endswith(f": pip install 'django-logic[{extra}]'.")
