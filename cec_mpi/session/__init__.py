"""Machines gathered around a master, and the stores that they open for it.

One of three rooms that touch MPI. May import: `core`, `files`, `machine`, `master`, `options`,
`processes`, `records`, `roster`, `store`, `terminal`, `wire`.
"""
