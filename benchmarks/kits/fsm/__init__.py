"""
django-fsm-2 with django-fsm-log.
"""
