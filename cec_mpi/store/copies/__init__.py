"""Stores of copies: parts of the rows of a sparse X, as CSR, in the files of several machines."""
