"""How processes begin, where they run, how they hear of each other's errors, and end.

One of three rooms that touch MPI.
"""
