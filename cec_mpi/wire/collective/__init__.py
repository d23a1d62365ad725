"""A step by collectives, which all ranks call in the same order: lockstep.

May import: `core`, `machine`, `processes`, `terminal`, `wire.answers`, `wire.opening`,
`wire.orders`, `wire.protocol`.
"""
