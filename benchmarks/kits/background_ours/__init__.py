"""
This library at work in the background.
"""
