"""One machine: holds shards, computes the rows it is assigned, times itself."""
