"""Coded stores: shard n is a linear combination of the L parts of X."""
