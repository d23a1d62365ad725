"""Coded shards on disk: one directory with a manifest and one ``.npy`` file per machine."""

from cec_mpi.store.decoder import decode
from cec_mpi.store.encoder import encode
from cec_mpi.store.growth import add_machine
from cec_mpi.store.manifest import Manifest, ShardEntry
from cec_mpi.store.reader import Store, open_store
from cec_mpi.store.repairer import repair
from cec_mpi.store.verifier import verify

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
