"""Stores of replicas: parts of a sparse X, the machines that hold them, and who computes what."""
