"""
The side effect every contender is given. Apart from the models, so that app configurations may load it.
"""

from __future__ import annotations


def do_nothing(*_args: object, **_kwargs: object) -> None:
    """
    Stand for work done under the lock, at no cost.
    """
