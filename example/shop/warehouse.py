"""
The warehouse: another company's system, reached over the network in real life, played here by a set in memory.

What matters for the shop: its answers are slow, and nothing it does is undone by a rollback of our database.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count


class Warehouse:
    """
    Keep goods aside under a reservation number until they are released.
    """

    def __init__(self) -> None:
        self.reservations: set[str] = set()
        #: Runs while a caller waits for an answer; the demo lets something happen meanwhile.
        self.while_answering: Callable[[], object] = lambda: None
        self._numbers = count(1)

    def reserve(self) -> str:
        """
        Keep goods aside; return the number of the reservation.
        """
        number = f"R{next(self._numbers):04}"
        self.reservations.add(number)
        self.while_answering()
        return number

    def release(self, number: str) -> None:
        """
        Put goods back; a number that is not held any more is fine.
        """
        self.reservations.discard(number)


warehouse = Warehouse()
