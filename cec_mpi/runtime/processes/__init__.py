"""How processes begin, where they run, how errors reach all of them, and how they end.

- `launcher`: who started this process, and whether others outlive one that is killed
- `library`: the MPI library of this process, and whether it can join the others
- `places`: cores, memory and networks, and problems with them in words
- `start`: MPI starts, all ranks meet and run one program
- `ending`: two ways to end; errors, printed once; signals
- `packing`: typed messages between processes, and exceptions in them
- `waiting`: waits that burn no core

One of three rooms that touch MPI.
"""
