"""Rank 0: plans each step, has it computed, decodes the answers, records what happened.

Talks to machines through a wire, never to MPI.
"""
