"""How processes begin, where they run, how errors reach all of them, and how they end.

- `launcher`: who started this process, and whether others outlive one that is killed
- `library`: the MPI library of this process; `workarounds`: what it and launchers get wrong
- `places`: cores, memory and network cards; `findings`: problems with them, in words
- `start`: MPI starts, and all ranks meet; `together`: a program that all ranks run
- `failing`: errors, printed once and told to all; `ending`: how processes leave
- `waiting`: waits that burn no core; `shared_work`: work on a store that ranks share; `logs`

One of three rooms that touch MPI.
"""
