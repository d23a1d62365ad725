"""Plans: which machine computes which rows, the optimal loads, and Algorithm 1."""
