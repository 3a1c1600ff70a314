"""
Measure background engines on one server: what every contender shares.

Nothing here knows a contender; those live in ``kits``.
"""
