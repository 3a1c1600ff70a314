"""
viewflow.fsm, installed and run only.
"""
