"""Who computes which rows: the optimal loads, Algorithm 1 and its counterparts."""
