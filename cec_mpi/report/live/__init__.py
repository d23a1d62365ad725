"""Progress of work, on a terminal, as lines of a file, and in ``top``."""
