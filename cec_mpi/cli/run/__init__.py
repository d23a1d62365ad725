"""Run a task on a store, from its options to the files of its results."""
