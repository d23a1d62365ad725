"""What rounding does, and who is wrong: certified bounds, parity, naming the culprit.

May import: `core.code`.
"""
