"""Check processes, cores, network and store before a run: facts and findings."""
