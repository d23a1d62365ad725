"""The errors that cec_mpi raises on purpose.

::

    CecError                    exit code 1
    ├── InputError              exit code 2   wrong use or bad input (also a ValueError)
    ├── ShortageError           exit code 2   too few file descriptors, or too little memory
    ├── StoreError              exit code 2   not a store, or not one that this version reads
    │   └── DamagedStoreError   exit code 5   a shard is missing, truncated or altered
    ├── MachineError            exit code 3   a machine failed and the run could not go on
    │   └── DismissedError      exit code 7   a run asks this machine no more
    ├── ResultsError            exit code 3   results or records cannot be written any more
    ├── InfeasibleError         exit code 4   too few machines for a plan (also a ValueError)
    ├── StoppedError            exit code 6   stopped by a time limit or a signal, to be resumed
    └── ConvergenceError        exit code 8   a solver did not converge; its results are saved

    UserWarning
    ├── ScaleWarning            columns of X differ so much that a solver does badly
    ├── SlowWarning             a run is right, and slower than it could be
    └── ToleranceWarning        a tolerance is below what products with X can show

Each message says what was looked at, what was found and what was expected, in one
sentence: the command line prints it as it stands.
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
    """Base of all errors of this package; ``exit_code`` is the command line's."""

    exit_code = 1


class InputError(CecError, ValueError):
    """An argument, option or input file cannot be used."""

    exit_code = 2


class ShortageError(CecError):
    """The process or the computer is short of something, and nothing is known of a file."""

    exit_code = 2


class StoreError(CecError):
    """A directory is not a store, or not one that this version can read."""

    exit_code = 2


class DamagedStoreError(StoreError):
    """A shard is missing, truncated, exchanged or altered."""

    exit_code = 5


class MachineError(CecError):
    """A machine failed and the run could not go on."""

    exit_code = 3


class DismissedError(MachineError):
    """A run asks this machine no more, since its answers were wrong."""

    exit_code = 7


class ResultsError(CecError):
    """Results, records or a checkpoint cannot be written, as on a disk that is full."""

    exit_code = 3


class InfeasibleError(CecError, ValueError):
    """Fewer machines are available than each row needs."""

    exit_code = 4


class StoppedError(CecError):
    """The run was stopped before it was done; it can be resumed."""

    exit_code = 6


class ConvergenceError(CecError):
    """A solver did not converge; what it had in the end is saved."""

    exit_code = 8


class ScaleWarning(UserWarning):
    """Scales are such that a solver is slow, or a result is poor or has no error bound."""


class SlowWarning(UserWarning):
    """How ranks were started makes the run slow, or its measured speeds mean little."""


class ToleranceWarning(UserWarning):
    """A tolerance is smaller than what products with X differ by, from step to step."""
