"""The state of a task from which a later run continues."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError

_MAX_COUNT = 2**53  # iterations: more could not be counted in a float
_LARGEST = 2.0**200  # of a solver's start: none comes near it with X and vectors of numbers near 1


class Checkpoint(Protocol):
    """Saves the state of a task, and holds the state of an earlier run."""

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """The last state that an earlier run saved; empty if none."""

    @property
    def wanted(self) -> bool:
        """Whether checkpoints are written before the task ends.

        Only then a solver that does not show its state is stopped and restarted for them.
        """

    @property
    def every(self) -> int:
        """Number of steps (products with X) between two writes; it may change."""

    def save(self, **state: ArrayLike | Callable[[], ArrayLike]) -> None:
        """Save the state that is needed to continue from here; it is written when due.

        It is fast enough to be called in each iteration. Arrays are copied, so a solver may change
        them afterwards. A function is called when the state is written and returns an array; use
        it for large arrays that do not change.
        """

    def progress(self, **numbers: float) -> None:
        """Show progress after any product, for example ``progress(residual=1e-3)``."""


class _NoCheckpoint:
    """Saves nothing."""

    wanted = False
    every = sys.maxsize

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        return {}

    def save(self, **state: ArrayLike | Callable[[], ArrayLike]) -> None:
        pass

    def progress(self, **numbers: float) -> None:
        pass

    def __repr__(self) -> str:
        return "<no checkpoint>"


NO_CHECKPOINT: Checkpoint = _NoCheckpoint()


def restore_state(
    checkpoint: Checkpoint, **shapes: tuple[int | None, ...]
) -> dict[str, NDArray[Any]] | None:
    """Return the state to continue from, or None if there is none.

    Parameters
    ----------
    checkpoint : Checkpoint
    **shapes : tuple of int or None
        Shape of each array of the state; None stands for any length.

    Raises
    ------
    InputError
        The state has other arrays or shapes, an array holds other values than finite floating-point
        numbers, or a count or tolerance is negative or not a number.
    """
    state = checkpoint.state
    if not state:
        return None
    found = {name: tuple(array.shape) for name, array in state.items()}
    if found.keys() != shapes.keys() or not all(
        _shape_matches(found[name], shapes[name]) for name in found
    ):
        raise InputError(
            f"the checkpoint does not fit this task: found {_text(found)}, expected {_text(shapes)}"
        )
    for name, array in state.items():
        if array.dtype.kind not in ("f" if array.shape else "fiu") or not np.isfinite(array).all():
            raise InputError(
                f"the checkpoint does not fit this task: {name} of dtype {array.dtype} holds "
                "other values than finite floating-point numbers"
            )
        if not array.shape and not 0 <= array < _MAX_COUNT:
            raise InputError(
                f"the checkpoint does not fit this task: {name} is {array}, expected a number of "
                f"at least 0 and below {_MAX_COUNT}"
            )
    return state


def initial_vector(name: str, values: NDArray[Any], exponent: int = 0) -> NDArray[Any]:
    """Return the start of a solver: an array of a state times ``2**exponent``.

    Raises
    ------
    InputError
        It is too large to come from this task, and products with it would overflow.
    """
    with np.errstate(over="ignore"):
        start: NDArray[Any] = np.ldexp(values, exponent)
    if not np.abs(start).max(initial=0.0) < _LARGEST:
        raise InputError(
            f"the checkpoint does not fit this task: {name} holds numbers up to "
            f"{np.abs(values).max():.1g}, too large for its X and vectors"
        )
    return start


def _shape_matches(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        other in (length, None) for length, other in zip(shape, wanted, strict=True)
    )


def _text(shapes: Mapping[str, tuple[int | None, ...]]) -> str:
    return ", ".join(f"{name} of shape {shape}" for name, shape in sorted(shapes.items()))
