"""Steps by messages: orders that are answered one by one, by whoever is alive.

May import: `core`, `machine`, `processes`, `roster`, `wire.answers`, `wire.jobs`,
`terminal`, `wire.lifelines`, `wire.opening`, `wire.orders`.
"""
