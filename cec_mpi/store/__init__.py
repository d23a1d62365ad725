"""Coded shards on disk: one directory with a manifest and one ``.npy`` file per machine."""

from cec_mpi.store.encoder import encode
from cec_mpi.store.manifest import Manifest, ShardEntry
from cec_mpi.store.reader import Store, open_store

__all__ = ["Manifest", "ShardEntry", "Store", "encode", "open_store"]
