"""Lockstep: all ranks take part in the messages of each step, in the same order."""
