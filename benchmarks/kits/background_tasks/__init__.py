"""
django-tasks-db with the moves its user writes around it.
"""
