"""Display of progress on a terminal, in a notebook, in files, and by ``top``."""
