"""What several tasks have in common: options, checkpoints, scales, tolerances."""
