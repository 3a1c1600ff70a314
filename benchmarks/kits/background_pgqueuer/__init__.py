"""
pgqueuer with the moves its user writes around it.
"""
