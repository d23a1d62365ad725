"""What people see of work while it goes on: on a terminal, in the lines of a file, in ``top``."""
