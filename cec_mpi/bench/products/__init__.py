"""What a machine computes, and what rank 0 decodes, beside the best that NumPy does."""
