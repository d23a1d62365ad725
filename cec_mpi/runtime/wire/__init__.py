"""Communication between the master and machines: MPI collectives, or jobs over sockets.

This is one of three packages that use MPI.
"""
