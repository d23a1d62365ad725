"""Machines gathered around a master, and the stores that they open for it.

One of three rooms that touch MPI.
"""
