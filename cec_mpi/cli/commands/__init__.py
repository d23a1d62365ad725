"""Commands of the command line: their options, and a short function for each command."""
