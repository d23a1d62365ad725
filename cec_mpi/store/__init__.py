"""Coded shards on disk: one directory with a manifest and one ``.npy`` file per machine.

May import: `core`, `files`.
"""

from cec_mpi.store.format.manifest import Manifest, ShardEntry
from cec_mpi.store.operations.add_machine import add_machine
from cec_mpi.store.operations.decode import decode
from cec_mpi.store.operations.encode import encode
from cec_mpi.store.operations.repair import repair
from cec_mpi.store.operations.verify import verify
from cec_mpi.store.reader import Store, open_store

__all__ = [
    "Manifest",
    "ShardEntry",
    "Store",
    "add_machine",
    "decode",
    "encode",
    "open_store",
    "repair",
    "verify",
]
