"""Coded elastic computing on MPI: y = X w on machines of different speeds that come and go.

Importing this package loads neither MPI nor SciPy; the names below load what they need
when they are first used.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cec_mpi.core.mds import make_code
    from cec_mpi.core.planner import plan_step
    from cec_mpi.opening import open_operator
    from cec_mpi.store import add_machine, decode, encode, open_store, repair, verify

__all__ = [
    "__version__",
    "add_machine",
    "decode",
    "encode",
    "make_code",
    "open_operator",
    "open_store",
    "plan_step",
    "repair",
    "verify",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless asked

_HOME = {
    "add_machine": "cec_mpi.store",
    "decode": "cec_mpi.store",
    "encode": "cec_mpi.store",
    "make_code": "cec_mpi.core.mds",
    "open_operator": "cec_mpi.opening",
    "open_store": "cec_mpi.store",
    "plan_step": "cec_mpi.core.planner",
    "repair": "cec_mpi.store",
    "verify": "cec_mpi.store",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
