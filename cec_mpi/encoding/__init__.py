"""Encoding of X into a store, by one process or by all ranks of a communicator."""
