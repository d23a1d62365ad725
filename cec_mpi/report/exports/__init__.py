"""Runs in the forms of other programs: tables, and traces.

May import: `records`, `report`.
"""
