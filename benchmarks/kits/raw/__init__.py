"""
A statement written by hand, independent of our writer: what the database itself allows.
"""
