"""Common parts of tasks: checks of options, checkpoints, scaling and tolerances."""
