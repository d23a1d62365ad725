"""What several tasks have in common: options, checkpoints, scales, tolerances.

May import: `files`.
"""
