"""The commands of the command line: for each its options, and a short function."""
