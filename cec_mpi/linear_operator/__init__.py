"""X as a SciPy linear operator, and `open_operator`."""
