"""Display of progress on a terminal, as lines in a file, and in ``top``."""
