"""What all sources have in common."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

_EXTRAS = {"h5py": "hdf5", "zarr": "zarr"}  # that a library comes with


class Source(Protocol):
    """A matrix that any rectangle can be read of.

    Attributes
    ----------
    name : str
        For messages.
    shape : tuple of int
    dtype : numpy.dtype
        As the numbers are in the file.
    warning : str
        What the user should know before it is encoded, with ``{bytes}`` for the size of
        the shards; mostly empty.
    stamps : tuple of str
        Names, sizes and times of its files, from before the first look at them. Empty where
        nothing can say whether X is the same: then an encode is never resumed.
    column_names : tuple of str
        Empty where columns have no names.
    copies : int
        Memory that reading takes, in the sizes of the array that is read into.
    held : int
        Bytes that a process keeps of it beside, whatever is read.
    """

    copies: ClassVar[int]

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns, if it is a matrix."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """As the numbers are in the file."""

    @property
    def warning(self) -> str:
        """Mostly empty."""

    @property
    def stamps(self) -> tuple[str, ...]:
        """Of its files."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """Mostly none."""

    @property
    def held(self) -> int:
        """Mostly nothing."""

    def stamps_now(self) -> tuple[str, ...]:
        """Return what `stamps` would be now: the same while nobody has written to the files."""

    def where(self, row: int, column: int) -> str:
        """Where an entry is, for messages."""

    def read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        """Read rows ``start..stop`` of columns ``left..right`` into `out`, converting them.

        Raises
        ------
        InputError
            Names the file and what is wrong with it.
        OSError
            It could not be read now.
        """


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """What sources of one file or directory have."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stamps: tuple[str, ...]
    warning: str = ""
    copies: ClassVar[int] = 2
    held: ClassVar[int] = 0

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def column_names(self) -> tuple[str, ...]:
        """None."""
        return ()

    def stamps_now(self) -> tuple[str, ...]:
        """Of the file."""
        return (stamp(self.path),)

    def where(self, row: int, column: int) -> str:
        """Where an entry is."""
        return counted(row, column)


def counted(row: int, column: int) -> str:
    """Where an entry of an array is."""
    return f"row {row}, column {column} (counted from 0)"


def stamp(path: Path) -> str:
    """Name, size and time of change of a file."""
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


def fill(out: NDArray[Any], values: Any) -> None:
    """Convert values into `out`; too large ones become infinite, and are found later."""
    with np.errstate(over="ignore", invalid="ignore"):
        out[...] = values


def library(module: str, path: Path, to_be: str = "read") -> Any:
    """A library that a file needs to be read or written, and that few people have."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"{path} needs {module} to be {to_be}: pip install 'cec_mpi[{_EXTRAS[module]}]'"
        ) from None


def unreadable(path: object, error: BaseException) -> InputError:
    """An error of a file or of the library that reads it, as bad input."""
    reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
    return InputError(f"{path} cannot be read: {reason}")
