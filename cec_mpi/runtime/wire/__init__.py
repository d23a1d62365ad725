"""Communication between the master and machines: MPI collectives, or jobs over sockets.

One of three rooms that touch MPI.
"""
