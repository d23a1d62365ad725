"""Stores for tests."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import encode
from cec_mpi.store.format import grid

__all__ = ["encode_in_small_blocks"]


def encode_in_small_blocks(directory, X, machines, recovery):
    """A store of X with many blocks of 4 KiB; returns its path."""
    np.save(directory / "X.npy", X)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "_BLOCK_BYTES", 1 << 12)
        encode(directory / "X.npy", directory / "store", machines, recovery)
    return directory / "store"
