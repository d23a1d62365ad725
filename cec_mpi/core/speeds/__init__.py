"""How fast machines are: as a user says, or as their times tell.

May import: `core.plan`.
"""
