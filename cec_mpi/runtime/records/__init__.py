"""Records of a run: a line for each step, in the directory of the run."""
