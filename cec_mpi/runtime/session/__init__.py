"""Sessions: machines that serve a master, and the store that they open.

This is one of three packages that use MPI.
"""
