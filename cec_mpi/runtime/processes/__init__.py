"""Processes of a run: launcher, resources, start, messages, errors and exit.

- `launcher`: the launcher of this process, and the effect of a killed process on the others
- `resources`: cores, memory and networks of processes, and findings about them
- `start`: the MPI library, whether it fits the launcher, and the start of MPI
- `children`: child processes, which end with their parent
- `ending`: orderly exit, exit by an exception, errors that are printed once, signals
- `notices`: notices of preemption from the metadata services of clouds
- `packing`: typed messages between processes, and exceptions as messages
- `waiting`: waits that use little CPU time

This is one of three packages that use MPI.
"""
