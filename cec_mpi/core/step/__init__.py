"""One step as mathematics: answers put together, whichever machines gave them.

May import: `core.accuracy`, `core.deviation`, `core.code`, `core.plan`.
"""
