"""Replicated parts of a sparse X: their placement on machines, and plans of steps."""
