"""Commands of the command line: the options of each, and a short function."""
