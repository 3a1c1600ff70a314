"""
The hand-written ``transition_to`` the project grew from, without any library.
"""
