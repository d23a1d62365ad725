"""Functions that several tasks share: options, checkpoints, scales, tolerances."""
