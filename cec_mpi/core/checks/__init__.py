"""Checks of what machines answer, beside parity: terms of the adjoint.

May import: `core.accuracy`.
"""
