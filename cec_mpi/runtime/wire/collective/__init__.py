"""A step by collectives, which all ranks call in the same order: lockstep."""
