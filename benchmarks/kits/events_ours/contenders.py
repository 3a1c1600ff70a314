"""
What the controller of this library answers.
"""

from __future__ import annotations

from events_harness import trials
from harness.contender import Contender
from kits.events_ours.claims import claims, fill, sweep
from kits.events_ours.costs import cost
from kits.events_ours.outbox import Ours, Prepared

CONTENDERS: list[Contender] = []
EXTRAS = {**trials.extras(Ours(), Prepared()), "cost": cost, "fill": fill, "claims": claims, "sweep": sweep}
