"""Who says what to whom: steps by collectives, or by messages that outlive machines.

One of three rooms that touch MPI. May import: `core`, `files`, `machine`, `options`, `processes`,
`roster`, `store`, `terminal`.
"""
