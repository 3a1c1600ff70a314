"""
Prove that the starter test of a process can be pasted and run.
"""

from __future__ import annotations

import unittest
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.flows import Bind, declare
from tests.testkit.shop import ParcelProcess


def scaffold(*arguments: str) -> str:
    """
    Return what the command prints.
    """
    printed = StringIO()
    call_command("dl_scaffold", *arguments, stdout=printed)
    return printed.getvalue()


@pytest.mark.django_db(transaction=True)
def test_starter_runs_as_it_is_printed(bind: Bind, tmp_path: Path) -> None:
    """
    One method for each edge, in Python that imports, and every method passes.
    """
    bind(ParcelProcess)
    text = scaffold("app.Ticket", "way")
    names: dict[str, Any] = {"__name__": "pasted"}

    exec(compile(text, "pasted.py", "exec"), names)  # noqa: S102 (a test of text that is code)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(names["TestParcelProcess"]).run(result)

    assert [*result.failures, *result.errors] == []
    assert result.testsRun == 6
    assert "    def test_send_from_packed(self):\n        ticket = self.instance_in('packed')" in text
    assert "self.background_transition(ticket, 'send')" in text
    assert "self.assert_side_effects_ran(['book_courier'])" in text
    assert "assert_matrix(ParcelProcess, Ticket, database=False)" in text


def test_what_is_not_bound_is_one_line(bind: Bind) -> None:
    """
    An unknown model, an unbound one and a missing name each say what to do.
    """
    bind(declare(name="one"))
    for arguments, words in (
        (["app.Tikcet"], "Ticket"),
        (["app.Product"], "has no process"),
        (["app.Ticket", "two"], "has no process 'two'"),
    ):
        with pytest.raises(CommandError, match=words) as caught:
            scaffold(*arguments)
        assert "\n" not in str(caught.value)
