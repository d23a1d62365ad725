"""How processes begin, where they run, how errors reach all of them, and how they end.

- `launcher`: who started this process, and whether others outlive one that is killed
- `places`: cores, memory and networks, and problems with them in words
- `start`: the MPI library, whether it fits the launcher; MPI starts, and ranks meet
- `children`: processes that end with the one that has started them
- `ending`: two ways to end; errors, printed once; signals
- `packing`: typed messages between processes, and exceptions in them
- `waiting`: waits that burn no core

One of three rooms that touch MPI.
"""
