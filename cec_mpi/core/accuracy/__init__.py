"""Bounds on rounding errors, cancellation, scaling, and recombination of shards."""
