"""Machines that hold several shards: who computes which rows of which of them."""
