"""Suffixes, delimiters and libraries of matrix file formats."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from cec_mpi.errors import InputError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
HDF5_SUFFIXES = (".h5", ".hdf5", ".he5", ".hdf", ".h5ad")
HDF5_INPUT_SUFFIXES = (*HDF5_SUFFIXES, ".nc", ".nc4", ".mat")  # the last three are never written
MARKET_SUFFIXES = (".mtx", ".mtx.gz")
SPARSE_SUFFIXES = (".npz", *MARKET_SUFFIXES)
_EXTRAS = {"h5py": "hdf5", "zarr": "zarr", "xarray": "xarray"}  # extra, by library
_ALIASES = {"comma": ",", "tab": "\t", r"\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}


def parse_delimiter(text: str) -> str:
    """Return the delimiter for a character or a name.

    Raises
    ------
    InputError
        The text is neither a name nor one ASCII character, or the character is a letter, may occur
        in numbers, or marks quotes, comments or ends of lines.
    """
    delimiter = _ALIASES.get(text, text) if isinstance(text, str) else ""
    is_ambiguous = delimiter.isalnum() or delimiter in '"#+-._\r\n\0'
    if len(delimiter) != 1 or not delimiter.isascii() or is_ambiguous:
        names = ", ".join(name for name in _ALIASES if name.isalpha())
        raise InputError(
            f"delimiter {text!r}: expected one ASCII character that is not a letter and not part "
            f"of numbers, quotes or comments, or one of {names}"
        )
    return delimiter


def import_library(module: str, path: Path | str, action: str = "read") -> Any:
    """Import an optional library for a file; if it is missing, raise an error with its extra."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"{path} cannot be {action} without {module}: pip install 'cec_mpi[{_EXTRAS[module]}]'"
        ) from None
