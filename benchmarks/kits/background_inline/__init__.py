"""
This library without a worker: one process that runs what is there.
"""
