"""Rank 0: plans each step, asks machines, decodes their answers, and records what happened.

It reaches machines through a wire, and does not use MPI.
"""
