"""What a task makes: arrays in files of their own, numbers and text for the summary."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.files.npy import map_new, map_own
from cec_mpi.files.replacing import replacing
from cec_mpi.files.saving import writing
from cec_mpi.records.directory import RESULT

SAVED = object()  # in the place of an output that has a file of its own


class Outputs:
    """The files of arrays of one task.

    Parameters
    ----------
    directory : Path
    task : str
        Its name, for people.
    """

    def __init__(self, directory: Path, task: str) -> None:
        self._directory = directory
        self._task = task
        self._mapped: np.memmap[Any, Any] | None = None

    def map_products(self, shape: tuple[int, int], resumed: bool) -> NDArray[np.float64]:
        """Where products of `matvec` go to their file as they come; NaN until then."""
        path = self._directory / RESULT
        if resumed:
            self._mapped = map_own(path)
            check_products(path, self._mapped, shape)
        else:
            with writing(path):
                self._mapped = map_new(path, shape)
            self._mapped[:] = np.nan
        return self._mapped

    def flush(self) -> None:
        """Have the system write the products that have come so far."""
        if self._mapped is not None:
            self._mapped.flush()

    def save(self, name: object, value: object) -> object:
        """Save an array under its name; return a number or text for the summary."""
        if not isinstance(name, str) or not name.isidentifier():
            raise InputError(f"task {self._task} returned {name!r}: expected names of arrays")
        if self._mapped is not None and value is self._mapped:
            self.flush()
            return SAVED
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InputError(f"task {self._task} returned no array {name!r}: {error}") from None
        if array.dtype.kind == "O" and value is not None:
            raise InputError(f"task {self._task} returned {type(value).__name__} as {name!r}")
        plain = array.dtype.kind in "biufU" or value is None
        if array.ndim == 0 and plain and name != "result":
            number = array.item()
            finite = not isinstance(number, float) or math.isfinite(number)
            return number if finite else str(number)
        path = self._directory / f"{name}.npy"
        with (
            writing(path),
            replacing(path) as (descriptor, _),
            open(descriptor, "wb", closefd=False) as file,
        ):
            np.save(file, array, allow_pickle=False)
        return SAVED


def check_products(path: Path, products: NDArray[Any], shape: tuple[int, int]) -> None:
    """Refuse products of another number of vectors than this run has."""
    if products.shape != shape or products.dtype != np.float64:
        raise InputError(
            f"{path} has shape {products.shape}, this run makes {shape}: --resume "
            "continues with the same iterations, --overwrite starts again"
        )
