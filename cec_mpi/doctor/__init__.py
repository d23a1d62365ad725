"""Whether processes, cores, wire and store fit together: facts, findings, measurements."""
