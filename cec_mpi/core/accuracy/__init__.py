"""Rounding errors and their bounds, scaling, and recombination of shards."""
