"""Stores for tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from cec_mpi import encode
from cec_mpi.store import open_store, verify
from cec_mpi.store.format.checksums import shard_checksum
from cec_mpi.store.manifest_files import publish_generation
from cec_mpi.store.work import LocalRunner


@dataclass(frozen=True)
class SmallStore:
    """A store and the matrix that it encodes; it can be used as a path."""

    path: Path
    X: np.ndarray
    machines: int
    recovery: int

    def __fspath__(self):
        return str(self.path)

    @property
    def columns(self):
        return self.X.shape[1]


encode_blocks = partial(encode, block_bytes=1 << 12)
"""`cec_mpi.encode`, with many blocks in small shards."""


def encode_in_small_blocks(directory, X, machines, recovery):
    """Encode X in blocks of 4 KiB; return the path of the store."""
    np.save(directory / "X.npy", X)
    encode_blocks(directory / "X.npy", directory / "store", machines, recovery)
    return directory / "store"


def publish_matching_checksums(store, machine):
    """Replace the checksums of a shard by those of its current content."""
    checksums, manifest = verify(store).checksums, open_store(store).manifest
    shards = list(manifest.shards)
    xxh3_128 = shard_checksum(checksums[machine - 1])
    shards[machine - 1] = replace(shards[machine - 1], xxh3_128=xxh3_128)
    publish_generation(store, manifest, tuple(shards), checksums)


def read_files(directory, exclude=""):
    """Return the bytes of all files in a directory by name, without one of them."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != exclude}


def flip_bit(file, position):
    np.memmap(file, np.uint8, "r+")[position] ^= 1


class SmallPiecesRunner(LocalRunner):
    """A runner with the smallest possible pieces, as if many processes shared the work."""

    processes = 1 << 20


class InterruptedRunner(SmallPiecesRunner):
    """A runner that raises an error after some pieces."""

    def __init__(self, pieces, error=KeyboardInterrupt):
        super().__init__(threads=1)
        self.remaining, self.error = pieces, error

    def run(self, work):
        self.pieces, results = len(work.pieces), []
        for piece in work.pieces:
            if not self.remaining:
                raise self.error
            self.remaining -= 1
            results.append(work.process(piece))
        work.flush()
        return results
