"""
Measure what events cost: what a message adds to a move, how fast relays deliver, how soon, and how deep.

Nothing here knows a contender; those live in ``kits``.
"""
