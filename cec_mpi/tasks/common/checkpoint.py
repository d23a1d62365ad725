"""Checkpoints: the state of a task from which a later run continues."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError

_MAX_COUNT = 2**53  # floats represent all smaller integers exactly
_MAX_ENTRY = 2.0**200  # never reached by solvers, because X and vectors are scaled


class Checkpoint(Protocol):
    """Saves the state of a task, and returns the state that an earlier run has saved."""

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """The last saved state of an earlier run; empty if there was no such run."""

    @property
    def wanted(self) -> bool:
        """Whether checkpoints are written before the task ends.

        If so, a solver that does not expose its state is stopped and restarted for them.
        """

    @property
    def every(self) -> int:
        """Number of steps (products with X) between two writes; may change."""

    def save(self, **state: ArrayLike | Callable[[], ArrayLike]) -> None:
        """Save the state from which a run can continue; it is written when due.

        The call is fast enough for each iteration. Arrays are copied, so a solver may change them
        afterwards. Instead of a large array that does not change, pass a function that returns it:
        it is called only when the state is written.
        """

    def progress(self, **numbers: float) -> None:
        """Report progress after a product, for example ``progress(residual=1e-3)``."""


class _NoCheckpoint:
    """A checkpoint that does nothing."""

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
    """Return the state of an earlier run, or None.

    Parameters
    ----------
    checkpoint : Checkpoint
    **shapes : tuple of int or None
        Expected shape of each array; None stands for any length.

    Raises
    ------
    InputError
        The state has other arrays or shapes, an array has values that are not finite floating-point
        numbers, or a scalar is negative or too large.
    """
    state = checkpoint.state
    if not state:
        return None
    found_shapes = {name: tuple(array.shape) for name, array in state.items()}
    if found_shapes.keys() != shapes.keys() or not all(
        _shape_matches(found_shapes[name], shapes[name]) for name in found_shapes
    ):
        raise InputError(
            f"the checkpoint does not fit this task: found "
            f"{_format_shapes(found_shapes)}, expected {_format_shapes(shapes)}"
        )
    for name, array in state.items():
        if array.dtype.kind not in ("f" if array.shape else "fiu") or not np.isfinite(array).all():
            raise InputError(
                f"the checkpoint does not fit this task: {name} of dtype {array.dtype} holds "
                "values other than finite floating-point numbers"
            )
        if not array.shape and not 0 <= array < _MAX_COUNT:
            raise InputError(
                f"the checkpoint does not fit this task: {name} is {array}, expected a number of "
                f"at least 0 and below {_MAX_COUNT}"
            )
    return state


def restore_array(name: str, values: NDArray[Any], exponent: int = 0) -> NDArray[Any]:
    """Return an array of the state of an earlier run, times ``2**exponent``.

    Raises
    ------
    InputError
        An entry is so large that the state cannot come from this task.
    """
    with np.errstate(over="ignore"):
        scaled: NDArray[Any] = np.ldexp(values, exponent)
    if not np.abs(scaled).max(initial=0.0) < _MAX_ENTRY:
        raise InputError(
            f"the checkpoint does not fit this task: {name} holds numbers up to "
            f"{np.abs(values).max():.1g}, too large for this X and its vectors"
        )
    return scaled


def _shape_matches(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        expected_length in (length, None)
        for length, expected_length in zip(shape, expected, strict=True)
    )


def _format_shapes(shapes: Mapping[str, tuple[int | None, ...]]) -> str:
    return ", ".join(f"{name} of shape {shape}" for name, shape in sorted(shapes.items()))
