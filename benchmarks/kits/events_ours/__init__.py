"""
This library with its app of events.
"""
