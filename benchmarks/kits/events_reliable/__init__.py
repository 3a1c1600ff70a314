"""
django-reliable-outbox with local handlers and with its stream of Redis.
"""
