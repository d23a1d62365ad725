"""A step of an elastic run on its way: jobs are given, answered, given up and given to others.

May import: `core`, `errors`, `master.numbers`, `master.one_by_one`, `master.planning`,
`master.step`, `options`, `processes`, `roster`, `store`, `wire`.
"""
