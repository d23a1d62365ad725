"""Reports of runs: a page, figures, tables and traces."""
