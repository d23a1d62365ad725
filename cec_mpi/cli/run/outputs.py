"""Save the results of a task: each array in a file, numbers and text in the summary."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.masks import is_masked_array
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.records.directory import RESULT
from cec_mpi.store.files.npy import create_memmap, open_memmap
from cec_mpi.store.files.replacing import replacing
from cec_mpi.store.files.saving import convert_to_results_error

_RESULT_NAME = Path(RESULT).stem
_MAX_NAME_LENGTH = 100


class Outputs:
    """Files for the results of a task.

    Parameters
    ----------
    directory : Path
    task : str
        Name of the task, for messages.
    """

    def __init__(self, directory: Path, task: str) -> None:
        self._directory = directory
        self._task = task
        self._products: np.memmap[Any, Any] | None = None

    def map_products(self, shape: tuple[int, int], is_resumed: bool) -> NDArray[np.float64]:
        """Return the memory-mapped file of products of `matvec`; fill a new file with NaN."""
        path = self._directory / RESULT
        if is_resumed:
            self._products = open_memmap(path)
            check_products(path, self._products, shape)
        else:
            with convert_to_results_error(path):
                self._products = create_memmap(path, shape)
            self._products[:] = np.nan
        return self._products

    def flush(self) -> None:
        """Flush the memory-mapped products to disk."""
        if self._products is not None:
            self._products.flush()

    def save(self, outcome: Mapping[str, Any], reserved_names: Collection[str]) -> SaveResult:
        """Save as many of a task's results as possible.

        Parameters
        ----------
        outcome : mapping
            Returned by `convert_outcome`.
        reserved_names : collection of str
            Names that the summary uses; numbers and text with these names are saved in files.

        Returns
        -------
        SaveResult
        """
        saved = SaveResult()
        for name, value in outcome.items():
            try:
                self._save_value(name, value, name in reserved_names, saved)
            except (CecError, MemoryError, OSError):
                raise
            except Exception as error:  # raised by NumPy, or by the object itself
                kind = type(value).__name__
                saved.unsaved.append(f"{name!r} of type {kind}, which cannot be saved ({error})")
        return saved

    def _save_value(self, name: str, value: object, is_reserved: bool, saved: SaveResult) -> None:
        """Save a value in a file, or add it to the values for the summary."""
        if self._products is not None and value is self._products:
            self.flush()
            saved.array_names.append(name)
            return
        if is_masked_array(value) and value.dtype.kind in "biuf":
            value = np.ma.filled(value.astype(np.float64), np.nan)
        try:
            array = np.asarray(value)
        except ValueError:  # rows of different lengths
            array = _to_object_array(value)
        is_plain = array.dtype.kind in "biufU" or value is None
        if array.ndim == 0 and is_plain and name != _RESULT_NAME and not is_reserved:
            scalar = array.astype(np.float64).item() if array.dtype.kind == "f" else array.item()
            is_finite = not isinstance(scalar, float) or math.isfinite(scalar)
            saved.summary_values[name] = scalar if is_finite else str(scalar)
            return
        path = self._directory / f"{name}.npy"
        if array.dtype.hasobject:
            array = _to_object_array(value)
            saved.warnings.append(
                f"task {self._task} returned {type(value).__name__} as {name!r}, which is not an "
                "array of numbers: it was pickled, and numpy.load needs allow_pickle=True to "
                f"read {path}"
            )
        with (
            convert_to_results_error(path),
            replacing(path) as (descriptor, _),
            open(descriptor, "wb", closefd=False) as file,
        ):
            np.save(file, array)
        saved.array_names.append(name)


@dataclass
class SaveResult:
    """Result of `Outputs.save`.

    Attributes
    ----------
    array_names : list of str
        Names of values that were saved in files.
    summary_values : dict
        Numbers and text for the summary.
    warnings : list of str
        Warnings about the files.
    unsaved : list of str
        Values that could not be saved, with reasons.
    """

    array_names: list[str] = field(default_factory=list)
    summary_values: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    unsaved: list[str] = field(default_factory=list)


def convert_outcome(returned: object) -> dict[str, Any]:
    """Return the results of a task by name; the names are valid in file names.

    They are the keys of a mapping, the fields of a named tuple, or result_0, result_1, ... for a
    tuple. None has no results. Any other value is named result.

    Examples
    --------
    >>> convert_outcome(3.5), convert_outcome((1, 2)), convert_outcome({"a b": 1})
    ({'result': 3.5}, {'result_0': 1, 'result_1': 2}, {'a_b': 1})
    """
    if isinstance(returned, Mapping):
        items = list(returned.items())
    elif isinstance(returned, tuple):
        fields = getattr(returned, "_fields", [f"{_RESULT_NAME}_{k}" for k in range(len(returned))])
        items = list(zip(fields, returned, strict=True))
    else:
        items = [] if returned is None else [(_RESULT_NAME, returned)]
    outcome: dict[str, Any] = {}
    for key, value in items:
        name = re.sub(r"\W", "_", str(key))[:_MAX_NAME_LENGTH] or "_"
        while name in outcome:
            name += "_"
        outcome[name] = value
    return outcome


def _to_object_array(value: object) -> NDArray[Any]:
    array = np.empty((), dtype=object)
    array[()] = value
    return array


def check_products(path: Path, products: NDArray[Any], shape: tuple[int, int]) -> None:
    """Raise `InputError` if the shape or dtype of the products in a file differs."""
    if products.shape != shape or products.dtype != np.float64:
        raise InputError(
            f"{path} has shape {products.shape} and dtype {products.dtype}, but this run computes "
            f"{shape} in float64: use --resume with the same vectors and iterations, or "
            "--overwrite to start from the beginning"
        )
