"""Sessions: machines that serve a master, and the store that they open.

One of three rooms that touch MPI.
"""
