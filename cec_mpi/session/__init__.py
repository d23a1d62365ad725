"""Sessions: machines that serve a master, and the stores that they open.

One of three rooms that touch MPI.
"""
