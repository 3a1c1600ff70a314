"""
The contenders, one package per interpreter environment.
"""
