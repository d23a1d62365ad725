"""The commands of the command line: for each its options, and a short function.

May import: `bench`, `cluster`, `core`, `doctor`, `drawing`, `files`, `live`, `options`,
`processes`, `records`, `report`, `run`, `session`, `store`, `tasks`, `terminal`.
"""
