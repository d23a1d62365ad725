"""What rounding does, and who is wrong: scaling, parity, naming the culprit.

May import: `core.code`.
"""
