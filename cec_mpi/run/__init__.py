"""A task on a store, from options to the files of results.

May import: `core`, `files`, `linear_operator`, `live`, `options`, `processes`, `records`,
`session`, `store`, `tasks`, `terminal`.
"""
