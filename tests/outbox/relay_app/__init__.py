"""
An app that relays of tests are started with, for the sake of its subscribers and publishers.
"""
