"""
The statements of one attempt, sent by pgbench: what the database itself allows.
"""
