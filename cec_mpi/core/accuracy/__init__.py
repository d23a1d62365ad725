"""What rounding does to shards, answers and products: bounds, estimates, scaling.

May import: `core.code`.
"""
