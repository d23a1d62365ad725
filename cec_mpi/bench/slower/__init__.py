"""Machines that really are slower: how near to the optimum their makespans come.

`limits` slows processes, by control groups or by busy neighbours; `machines` is what the ranks do,
and `makespan` starts them.
"""
