"""Simulated runs, which use the objects of a real run with a simulated clock and modelled times."""
