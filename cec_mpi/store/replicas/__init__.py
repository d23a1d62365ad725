"""Replicated stores: parts of the rows of a sparse X, as CSR, in several shard files each."""
