"""Who says what to whom: steps by collectives of MPI, or by jobs over sockets.

One of three rooms that touch MPI.
"""
