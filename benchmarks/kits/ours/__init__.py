"""
This library, and the very statement it sends through a bare cursor.
"""
