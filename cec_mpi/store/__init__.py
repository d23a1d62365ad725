"""Stores: directories with a manifest and one shard file per machine.

Names are imported on first use, because machines do not need the operations.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import Manifest, ShardEntry
    from cec_mpi.store.operations.add_machine import add_machine
    from cec_mpi.store.operations.decode import decode
    from cec_mpi.store.operations.repair import repair
    from cec_mpi.store.operations.verify import verify
    from cec_mpi.store.reader import Store, open_store

__all__ = [
    "Manifest",
    "ShardEntry",
    "Store",
    "add_machine",
    "decode",
    "open_store",
    "repair",
    "verify",
]

_MODULES = {
    "Manifest": "format.manifest",
    "ShardEntry": "format.manifest",
    "Store": "reader",
    "add_machine": "operations.add_machine",
    "decode": "operations.decode",
    "open_store": "reader",
    "repair": "operations.repair",
    "verify": "operations.verify",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
