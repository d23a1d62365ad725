"""Arrays in containers, and how slices of X follow from theirs."""

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
    decoding_attributes,
    make_decoder,
    refuse,
)
from cec_mpi.encoding.sources.source import Source, unreadable
from cec_mpi.errors import InputError
from cec_mpi.text import truncate

LISTED = 5  # matrices of a container, in messages


@dataclass(frozen=True)
class View:
    """How slices of X follow from slices of a stored array.

    Attributes
    ----------
    name : str
        For messages.
    dtype : numpy.dtype
        Dtype of X.
    transposed : bool
        Whether X is the transpose.
    decoder : Decoder, optional
    unwritten : number, optional
        Number that stands where nothing was written, which is refused.
    files : tuple of Path
        Further files that hold the numbers.
    warnings : tuple of str
        What to say about the array before encoding.
    """

    name: str
    dtype: np.dtype[Any]
    transposed: bool = False
    decoder: Decoder | None = None
    unwritten: Any = None
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def copies(self) -> int:
        """Memory for reading, as a multiple of the size of a slice."""
        return 2 if self.decoder is None else 6

    def shape(self, stored: Any) -> tuple[int, ...]:
        """Return the shape of X from that of the array."""
        lengths = tuple(stored or ())
        return lengths[::-1] if self.transposed else lengths

    def read(self, array: Any, places: tuple[slice, slice]) -> Any:
        """Read a slice of X."""
        rows, columns = places
        found = array[columns, rows].T if self.transposed else array[rows, columns]
        if self.unwritten is not None and (absent := found == self.unwritten).any():
            row, column = np.argwhere(absent)[0].tolist()
            raise InputError(
                f"{self.name} holds {self.unwritten} at row {rows.start + row}, column "
                f"{columns.start + column} (counted from 0), which stands where nothing was "
                "written: expected --decode-cf, which takes it as missing, or --raw-values"
            )
        return found if self.decoder is None else self.decoder(found)


@dataclass(frozen=True)
class ContainerArray:
    """An array in a container, which is opened for each read.

    Attributes
    ----------
    opened : callable
        Opens the array: a context manager that takes `path` and `inner`.
    path : Path
    inner : str
        Name of the array in the container; empty if the container is the array.
    view : View
    """

    opened: Callable[[Path, str], AbstractContextManager[Any]]
    path: Path
    inner: str
    view: View

    def __getitem__(self, places: tuple[slice, slice]) -> Any:
        try:
            with self.opened(self.path, self.inner) as array:
                return self.view.read(array, places)
        except (OSError, MemoryError, InputError):
            raise
        except Exception as error:  # the libraries raise many kinds of errors for a damaged file
            name = f"{self.path}::{self.inner}" if self.inner else self.path
            raise unreadable(name, error) from None


def container_source(
    open_container: Callable[[Path, str], AbstractContextManager[Any]],
    path: Path,
    inner: str,
    shape: Any,
    view: View,
    stamps: tuple[str, ...],
    look: Callable[[], tuple[str, ...]],
) -> Source:
    """Return the source of an array in a container; `look` returns its stamps of now."""
    return Source(
        name=view.name,
        array=ContainerArray(open_container, path, inner, view),
        shape=view.shape(shape),
        dtype=view.dtype,
        warning="; ".join(view.warnings),
        stamps=stamps,
        stamps_now=look,
        copies=view.copies,
    )


def apply_attributes(
    view: View, attributes: Mapping[str, Any], options: EncodeOptions, unwritten: Any = None
) -> View:
    """Return a view that minds attributes by which numbers differ from those that are stored.

    Raises
    ------
    InputError
        There are such attributes, and no option says what to do with them.
    """
    if options.raw_values or view.dtype.kind not in "fiub":
        return view
    found = decoding_attributes(attributes, view.dtype)
    if not options.decode_cf:
        refuse(view.name, found)
        return replace(view, unwritten=unwritten)
    decoder = make_decoder(view.name, found, view.dtype, unwritten)
    return replace(view, decoder=decoder, dtype=decoder.dtype)


def only_matrix(path: Path, matrices: list[str]) -> str:
    """Return the only one of these matrices of a container."""
    if len(matrices) != 1:
        which = truncate(matrices, LISTED)
        raise InputError(
            f"{path} has {len(matrices)} matrices ({which}): choose one with {path}::/NAME"
        )
    return matrices[0]
