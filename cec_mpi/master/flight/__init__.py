"""A step of an elastic run on its way: jobs are given, answered, given up and given to others."""
