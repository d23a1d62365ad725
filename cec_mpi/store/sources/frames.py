"""Data frames of pandas and arrays of xarray, whose columns have names."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.sources.arrays import ArraySource, array_source, name_of
from cec_mpi.store.sources.base import fill
from cec_mpi.store.sources.chunks import chunked_source
from cec_mpi.text import few, shown

_LISTED = 5


class FrameSource(ArraySource):
    """A DataFrame of pandas; what it misses is NaN, and found as that."""

    copies: ClassVar[int] = 4

    def _read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        with self._turn:  # pandas promises threads nothing
            part = self.array.iloc[start:stop, left:right]
            missing = any(hasattr(dtype, "na_value") for dtype in part.dtypes)
            rows = part.to_numpy(self.dtype, **({"na_value": np.nan} if missing else {}))
            fill(out, self.checked(rows, start, left, out.shape))


def frame_source(frame: Any) -> FrameSource:
    """A DataFrame of numbers.

    Raises
    ------
    InputError
        Names the columns that hold something else.
    """
    found = [_number_dtype(dtype) for dtype in frame.dtypes]
    others = [at for at, dtype in enumerate(found) if dtype is None]
    if others:
        columns = [f"{shown(frame.columns[at])} ({frame.dtypes.iloc[at]})" for at in others]
        raise InputError(
            f"{name_of(frame)} has columns that hold no numbers, {few(columns, _LISTED)}: expected "
            "real numbers, X.drop(columns=...) leaves out what is none"
        )
    numbers = [dtype for dtype in found if dtype is not None]
    return FrameSource(
        array=frame,
        name=name_of(frame),
        shape=tuple(frame.shape),
        dtype=np.result_type(*numbers) if numbers else np.dtype(np.float64),
        column_names=_names(frame.columns),
    )


def labelled_source(array: Any, memory: int, recovery: int) -> ArraySource:
    """A DataArray of xarray; what is not loaded is read, or computed by Dask, as it is needed."""
    names: tuple[str, ...] = ()
    if len(array.dims) == 2 and array.dims[1] in array.coords:
        names = _names(array.coords[array.dims[1]].values)
    if array.chunks is not None:
        return chunked_source(array.data, memory, recovery, names)
    plain = array_source(array)
    return ArraySource(
        array=array, name=plain.name, shape=plain.shape, dtype=plain.dtype, column_names=names
    )


def _number_dtype(dtype: Any) -> np.dtype[Any] | None:
    """Of the numbers of a column; None where it holds others, or none."""
    if type(dtype).__name__ == "SparseDtype":
        dtype = dtype.subtype
    missing = hasattr(dtype, "numpy_dtype")  # a column of pandas's own, which may lack numbers
    try:
        found = np.dtype(dtype.numpy_dtype if missing else dtype)
    except TypeError:
        return None
    if found.kind not in "fiubc":
        return None
    return np.dtype(np.float64) if missing and found.kind != "f" else found


def _names(labels: Any) -> tuple[str, ...]:
    """Labels of columns, if all of them are text."""
    return tuple(map(str, labels)) if all(isinstance(label, str) for label in labels) else ()
