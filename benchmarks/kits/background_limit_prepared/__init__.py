"""
The statements of one attempt, prepared once in each session.
"""
