"""Whole steps beside what makes the same result with less, or did so before.

May import: `bench`, `core`, `linear_operator`, `options`, `processes`, `records`,
`store`.
"""
