"""
django-outbox-pattern, publishing to a receiver of STOMP.
"""
