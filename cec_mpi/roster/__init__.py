"""Which process is which machine, and in what state: without MPI, sockets, or a clock of its own.

The wires change it, and who plans steps hears of it.
"""
