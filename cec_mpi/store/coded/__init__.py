"""Stores of a code: machine n has shard n, a linear combination of L parts of X."""
