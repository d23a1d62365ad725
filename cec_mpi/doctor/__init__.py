"""Check processes, cores, network and store before a run: facts, findings, measurements."""
