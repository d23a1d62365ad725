"""Check processes, cores, MPI and store before a run: facts and findings."""
