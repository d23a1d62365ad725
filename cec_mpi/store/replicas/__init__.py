"""Stores of a sparse X: each part of its rows as CSR in the files of several machines."""
