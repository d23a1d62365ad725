"""Errors and warnings of cec_mpi.

::

    CecError                    exit code 1
    ├── InputError              exit code 2   wrong use or bad input (also a ValueError)
    ├── ShortageError           exit code 2   too few file descriptors, or too little memory
    ├── StoreError              exit code 2   not a store, or a store of an unknown version
    │   └── DamagedStoreError   exit code 5   a shard is missing, truncated or altered
    ├── MachineError            exit code 3   a machine failed, or a product is not finite
    │   └── DismissedError      exit code 7   the run has excluded this machine
    ├── ResultsError            exit code 3   results or records cannot be written
    ├── InfeasibleError         exit code 4   too few machines for a plan (also a ValueError)
    ├── StoppedError            exit code 6   stopped by a time limit or a signal; can be resumed
    └── ConvergenceError        exit code 8   a solver did not converge; its results are saved

    UserWarning
    ├── ScaleWarning            scales differ so much that results are inaccurate or solvers slow
    ├── SlowWarning             a run is slower than necessary, or measured speeds are unreliable
    └── ToleranceWarning        a tolerance is smaller than the errors of products with X

Each message states what was checked, what was found and what was expected. The command line prints
it unchanged.
"""

from __future__ import annotations

__all__ = [
    "CecError",
    "ConvergenceError",
    "DamagedStoreError",
    "DismissedError",
    "InfeasibleError",
    "InputError",
    "MachineError",
    "ResultsError",
    "ScaleWarning",
    "ShortageError",
    "SlowWarning",
    "StoppedError",
    "StoreError",
    "ToleranceWarning",
]


class CecError(Exception):
    """Base class of all errors; ``exit_code`` is the exit code of the command line."""

    exit_code = 1


class InputError(CecError, ValueError):
    """An argument, option or input file cannot be used."""

    exit_code = 2


class ShortageError(CecError):
    """The process or the computer lacks a resource, such as memory or file descriptors."""

    exit_code = 2


class StoreError(CecError):
    """A directory is not a store, or is a store that this version cannot read."""

    exit_code = 2


class DamagedStoreError(StoreError):
    """A shard is missing, truncated, swapped or altered."""

    exit_code = 5


class MachineError(CecError):
    """A machine failed and the run could not continue, or a product is too large for float64."""

    exit_code = 3


class DismissedError(MachineError):
    """The run has excluded this machine because its answers were wrong."""

    exit_code = 7


class ResultsError(CecError):
    """Results, records or a checkpoint cannot be written, for example because the disk is full."""

    exit_code = 3


class InfeasibleError(CecError, ValueError):
    """Fewer machines are available than each row needs."""

    exit_code = 4


class StoppedError(CecError):
    """The run was stopped before it was complete; it can be resumed."""

    exit_code = 6


class ConvergenceError(CecError):
    """A solver did not converge; its last results are saved."""

    exit_code = 8


class ScaleWarning(UserWarning):
    """Scales differ so much that a solver is slow, or a result is inaccurate."""


class SlowWarning(UserWarning):
    """Ranks were started in a way that makes the run slow, or measured speeds unreliable."""


class ToleranceWarning(UserWarning):
    """A tolerance is smaller than the differences between products with X from step to step."""
