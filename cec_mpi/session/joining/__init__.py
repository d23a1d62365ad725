"""Machines that come by themselves: the master that lets them, and what each of them does.

May import: `master`, `options`, `processes`, `session.serving`, `session.session`, `session.turns`,
`terminal`, `wire`.
"""
