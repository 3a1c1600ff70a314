"""
The published django-logic at work in the background, installed and run only.
"""
