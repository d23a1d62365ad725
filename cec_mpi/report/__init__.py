"""Reports of runs: HTML pages, figures, tables, and the display of progress."""
