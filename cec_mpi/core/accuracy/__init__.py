"""Rounding errors and their bounds, cancellation, scaling, and recombination of shards."""
