"""Stores for tests."""

from __future__ import annotations

from functools import partial

import numpy as np

from cec_mpi import encode

__all__ = ["encode_blocks", "encode_in_small_blocks"]

encode_blocks = partial(encode, block_bytes=1 << 12)
"""`cec_mpi.encode`, with many blocks in small shards."""


def encode_in_small_blocks(directory, X, machines, recovery):
    """A store of X with many blocks of 4 KiB; returns its path."""
    np.save(directory / "X.npy", X)
    encode_blocks(directory / "X.npy", directory / "store", machines, recovery)
    return directory / "store"
