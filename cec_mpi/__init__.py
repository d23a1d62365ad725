"""Coded elastic computing on MPI: y = X w on machines of different speeds that come and go.

Importing this package loads neither MPI nor SciPy. Functions and submodules are imported when they
are first used; `engines` and `sklearn` need extras.
"""

from __future__ import annotations

import importlib
import logging
import os
from typing import TYPE_CHECKING, Any

from cec_mpi._version import __version__ as __version__

if TYPE_CHECKING:
    from cec_mpi import availability, errors, records, tasks
    from cec_mpi.core.code.mds import make_code
    from cec_mpi.core.plan.planner import plan_step
    from cec_mpi.encoding.encode import encode
    from cec_mpi.linear_operator.opening import open_operator
    from cec_mpi.report.live.progress import show_progress
    from cec_mpi.runtime.session.host import join
    from cec_mpi.store import add_machine, decode, open_store, repair, verify

__all__ = [
    "add_machine",
    "availability",
    "decode",
    "encode",
    "errors",
    "join",
    "make_code",
    "open_operator",
    "open_store",
    "plan_step",
    "records",
    "repair",
    "show_progress",
    "tasks",
    "verify",
]

# no output unless the program configures logging
logging.getLogger(__name__).addHandler(logging.NullHandler())

_MODULES = {
    "add_machine": "cec_mpi.store",
    "decode": "cec_mpi.store",
    "encode": "cec_mpi.encoding.encode",
    "join": "cec_mpi.runtime.session.host",
    "make_code": "cec_mpi.core.code.mds",
    "open_operator": "cec_mpi.linear_operator.opening",
    "open_store": "cec_mpi.store",
    "plan_step": "cec_mpi.core.plan.planner",
    "repair": "cec_mpi.store",
    "show_progress": "cec_mpi.report.live.progress",
    "verify": "cec_mpi.store",
}

if {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_PROCID"} & os.environ.keys():  # set by launchers
    importlib.import_module(f"{__name__}.runtime.processes.ending").abort_job_on_exceptions()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name in __all__ or name in ("engines", "sklearn"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
