"""Simulated runs: the objects of a real run on a simulated clock, with modelled machine times."""
