"""A task on a store, from options to the files of results."""
