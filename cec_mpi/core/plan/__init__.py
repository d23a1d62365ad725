"""Plans: which machine holds which shards, the optimal loads, and Algorithm 1."""
