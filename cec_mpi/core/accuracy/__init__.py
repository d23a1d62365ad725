"""Bounds of rounding errors, cancellation, scaling, and recombination of shards."""
