"""Formats of matrices in files: what names and options of encode and decode have in common."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from cec_mpi.errors import InputError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
HDF5_SUFFIXES = (".h5", ".hdf5", ".he5", ".hdf")
_EXTRAS = {"h5py": "hdf5", "zarr": "zarr"}  # that a library comes with
_NAMES = {"comma": ",", "tab": "\t", r"\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}


def checked_delimiter(text: str) -> str:
    """One character, given as such or by its name.

    Raises
    ------
    InputError
        It is none, or one that numbers have.
    """
    found = _NAMES.get(text, text)
    letter = found.isalnum() or not found.isascii() or found in '"#+-._\r\n\0'
    if len(found) != 1 or letter:
        raise InputError(
            f"delimiter {text!r}: expected one character that numbers do not have, or one of "
            f"{', '.join(name for name in _NAMES if name.isalpha())}"
        )
    return found


def library(module: str, path: Path, to_be: str = "read") -> Any:
    """A library that a file needs to be read or written, and that few people have."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"{path} needs {module} to be {to_be}: pip install 'cec_mpi[{_EXTRAS[module]}]'"
        ) from None
