"""What else is made of a run's records: figures for papers, tables, traces."""
