"""
Let ``python -m benchmarks.sync`` find the packages that ``python benchmarks/sync.py`` finds.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
