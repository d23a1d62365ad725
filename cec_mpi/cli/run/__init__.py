"""Run a task on a store: options, checkpoints, result files and the closing lines."""
