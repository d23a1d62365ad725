"""One step as mathematics: answers put together, whichever machines gave them.

May import: `core.accuracy`, `core.checks`, `core.code`, `core.deviation`, `core.plan`.
"""
