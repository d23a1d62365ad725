"""Rank 0: plans steps, sends requests to machines, decodes their answers, and records steps.

It reaches machines through a wire, and does not use MPI.
"""
