"""
The published django-logic, installed and run only.
"""
