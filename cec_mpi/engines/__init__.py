"""Machines on workers of Dask and in tasks of Ray, which replace lost machines.

`cec_mpi.engines.dask` needs the extra ``dask``, and `cec_mpi.engines.ray` the extra ``ray``.
"""

import importlib
from types import ModuleType

_MODULES = "dask", "ray"


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
