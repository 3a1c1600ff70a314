"""
Stand for the project that the pages under docs/ speak of: its models come from the pages themselves.

The package goes by the name of ``shop``, so that what the pages print is what a reader sees.
"""

from __future__ import annotations

import sys

sys.modules["shop"] = sys.modules[__name__]
