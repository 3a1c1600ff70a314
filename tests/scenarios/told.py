"""
Read what the command for operators tells.
"""

from __future__ import annotations

from io import StringIO

from django.core.management import call_command


def told(*words: str) -> str:
    """
    Return what dl_transitions prints.
    """
    out = StringIO()
    call_command("dl_transitions", *words, stdout=out)
    return out.getvalue()
