"""
The order, its history and its event row, and the moves a user of a plain task queue writes by hand.
"""
