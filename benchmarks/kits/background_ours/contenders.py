"""
The library as the harness drives it.
"""

from __future__ import annotations

from background_harness.trials import extras
from harness.contender import Contender
from kits.background_ours.claims import claims
from kits.background_ours.engine import Ours

CONTENDERS: list[Contender] = []
EXTRAS = {**extras(Ours()), "claims": claims}
