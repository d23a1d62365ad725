"""Answers of all machines to a step in lockstep, and arrays for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.runtime.product import Product
from cec_mpi.store.format.manifest import Manifest

_MAX_COUNT = 2**31 - 1  # numbers in one message; Open MPI 5 fails with more
_MAX_REPORTED = 2.0**62  # seconds or bytes, more than any valid report


@dataclass(frozen=True)
class Answers:
    """The answers of the machines to a step.

    Attributes
    ----------
    values : ndarray
        For X W all answers, (machines_per_row * R * k,), in the order of machines (see
        `Assignment.positions`), with NaN for missing values. The next step overwrites them. For
        X' V the sum of all answers, (r * k,), float64, which belongs to the caller.
    seconds : (N,) ndarray of float64
        Computation time of machines 1..N, 0 if preempted.
    load_seconds, load_bytes : (N,) ndarray of float64
        Time and bytes for reading rows that machines 1..N had not read before.
    failed : list of int
        Machines that raised an exception.
    leaving : list of int
        Machines that must leave soon.
    not_finite : list of int
        Machines whose term of the sum X' V contains NaN or infinity.
    damaged : list of int
        Machines that failed because their shards are damaged.
    """

    values: NDArray[Any]
    seconds: NDArray[np.float64]
    load_seconds: NDArray[np.float64]
    load_bytes: NDArray[np.float64]
    failed: list[int]
    leaving: list[int] = field(default_factory=list)
    not_finite: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)


def zero_invalid_reports(reports: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace reported seconds and bytes that are out of range with 0, in place.

    Examples
    --------
    >>> zero_invalid_reports(np.array([0.5, -1.0, np.nan, np.inf]))
    array([0.5, 0. , 0. , 0. ])
    """
    # `argmin` is faster than `min`, and also finds NaN.
    smallest, largest = reports.item(reports.argmin()), reports.item(reports.argmax())
    if not (smallest >= 0 and largest < _MAX_REPORTED):  # rarely
        reports[~((reports >= 0) & (reports < _MAX_REPORTED))] = 0
    return reports


class AnswerBuffers:
    """Arrays for `Answers.values`; those for X W are reused in later steps.

    Parameters
    ----------
    manifest : Manifest
    arithmetic : dtype
        Dtype of answers to X W.
    """

    def __init__(self, manifest: Manifest, arithmetic: np.dtype[Any]) -> None:
        self._forward_size_and_dtype = manifest.code.recovery * manifest.rows_per_shard, arithmetic
        self._adjoint_size_and_dtype = manifest.columns, np.dtype(np.float64)
        self._arrays: dict[Product, NDArray[Any]] = {}

    def get(self, product: Product) -> NDArray[Any]:
        """Return the array for the next answers to this product; its content is undefined."""
        if product not in self._arrays:
            # Keep at most two arrays for X W and two for X' V: for k = 1, and for the last k > 1.
            self._arrays = {
                p: array
                for p, array in self._arrays.items()
                if p.columns == 1 or p.adjoint != product.adjoint
            }
            size, dtype = (
                self._adjoint_size_and_dtype if product.adjoint else self._forward_size_and_dtype
            )
            self._arrays[product] = np.empty(size * product.columns, dtype)
        return self._arrays[product]

    def take(self, product: Product) -> NDArray[Any]:
        """Like `get`, but the caller owns an array for X' V: it is not reused."""
        values = self.get(product)
        if product.adjoint:
            del self._arrays[product]
        return values


def check_message_sizes(manifest: Manifest, columns: int = 1) -> None:
    """Raise if a vector or the answers are too long for one MPI message.

    Raises
    ------
    InputError
        W, V or the answers of a step have 2**31 numbers or more.
    """
    for name, size in (
        ("W", manifest.columns),
        ("the answers of a step", manifest.code.recovery * manifest.rows_per_shard),
    ):
        if size * columns > _MAX_COUNT:
            raise InputError(
                f"{name} would have {size * columns} numbers: "
                f"an MPI message has at most {_MAX_COUNT}"
            )
