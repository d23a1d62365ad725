"""Records of a run as arrays, many steps at once: fields, chunks of lines, processes that read."""
