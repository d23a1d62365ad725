"""Arrays in containers (HDF5, Zarr), transposed or decoded to X."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources.conventions import (
    Decoder,
    effective_attributes,
    make_decoder,
    reject_attributes,
)
from cec_mpi.encoding.sources.source import Source, read_error
from cec_mpi.errors import InputError
from cec_mpi.text import truncate

MAX_LISTED = 5  # matrices of a container, in messages


@dataclass(frozen=True)
class View:
    """The mapping from slices of a stored array to slices of X.

    Attributes
    ----------
    name : str
        Name of X, for messages.
    dtype : numpy.dtype
        Dtype of X.
    transposed : bool
        Whether X is the transpose of the array.
    decoder : Decoder, optional
    unwritten_value : number, optional
        Fill value of entries that were never written; reading it raises an error.
    files : tuple of Path
        Other files with data of the array.
    warnings : tuple of str
        Warnings to give before encoding.
    """

    name: str
    dtype: np.dtype[Any]
    transposed: bool = False
    decoder: Decoder | None = None
    unwritten_value: Any = None
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def read_buffers(self) -> int:
        """Memory for reading a slice, as a multiple of its size."""
        return 2 if self.decoder is None else 6

    def shape(self, stored_shape: Any) -> tuple[int, ...]:
        """Return the shape of X from the shape of the array."""
        lengths = tuple(stored_shape or ())
        return lengths[::-1] if self.transposed else lengths

    def read(self, array: Any, slices: tuple[slice, slice]) -> Any:
        """Read a slice of X."""
        rows, columns = slices
        values = array[columns, rows].T if self.transposed else array[rows, columns]
        if (
            self.unwritten_value is not None
            and (is_unwritten := values == self.unwritten_value).any()
        ):
            row, column = np.argwhere(is_unwritten)[0].tolist()
            raise InputError(
                f"{self.name} holds {self.unwritten_value} at row {rows.start + row}, column "
                f"{columns.start + column} (counted from 0), the fill value of entries that were "
                "never written: expected --decode-cf, which makes it missing, or --raw-values"
            )
        return values if self.decoder is None else self.decoder(values)


@dataclass(frozen=True)
class ContainerArray:
    """An array in a container, which is opened for every read.

    Attributes
    ----------
    open : callable
        Takes `path` and `inner_path`, and returns a context manager of the array.
    path : Path
    inner_path : str
        Path of the array in the container; empty if the container is the array.
    view : View
    """

    open: Callable[[Path, str], AbstractContextManager[Any]]
    path: Path
    inner_path: str
    view: View

    def __getitem__(self, slices: tuple[slice, slice]) -> Any:
        try:
            with self.open(self.path, self.inner_path) as array:
                return self.view.read(array, slices)
        except (OSError, MemoryError, InputError):
            raise
        except Exception as error:  # libraries raise many types of errors for damaged files
            name = f"{self.path}::{self.inner_path}" if self.inner_path else self.path
            raise read_error(name, error) from None


def container_source(
    open_container: Callable[[Path, str], AbstractContextManager[Any]],
    path: Path,
    inner_path: str,
    shape: Any,
    view: View,
    stamps: tuple[str, ...],
    current_stamps: Callable[[], tuple[str, ...]],
) -> Source:
    """Return the source of an array in a container."""
    return Source(
        name=view.name,
        array=ContainerArray(open_container, path, inner_path, view),
        shape=view.shape(shape),
        dtype=view.dtype,
        warning="; ".join(view.warnings),
        stamps=stamps,
        current_stamps=current_stamps,
        read_buffers=view.read_buffers,
    )


def apply_attributes(
    view: View, attributes: Mapping[str, Any], options: EncodeOptions, unwritten_value: Any = None
) -> View:
    """Return a view that applies attributes which change the meaning of the stored values.

    Raises
    ------
    InputError
        There are such attributes, and neither ``raw_values`` nor ``decode_cf`` is set; or they
        cannot be decoded.
    """
    if options.raw_values or view.dtype.kind not in "fiub":
        return view
    effective = effective_attributes(attributes, view.dtype)
    if not options.decode_cf:
        reject_attributes(view.name, effective)
        return replace(view, unwritten_value=unwritten_value)
    decoder = make_decoder(view.name, effective, view.dtype, unwritten_value)
    return replace(view, decoder=decoder, dtype=decoder.dtype)


def find_only_matrix(path: Path, names: list[str]) -> str:
    """Return the name of the only matrix of a container; raise if it has none or several."""
    if not names:
        raise InputError(f"{path} has no matrix")
    if len(names) > 1:
        raise InputError(
            f"{path} has {len(names)} matrices ({truncate(names, MAX_LISTED)}): choose one with "
            f"{path}::/NAME"
        )
    return names[0]
