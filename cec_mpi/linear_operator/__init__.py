"""X as the linear operator that SciPy's solvers take, and the way in to it."""
