"""Simulated runs: the objects of a run, on a clock that jumps, with machines timed by a model."""
