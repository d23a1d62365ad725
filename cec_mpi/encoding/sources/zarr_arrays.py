"""Zarr arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources.source import Source, file_stamps, read_error
from cec_mpi.encoding.sources.views import (
    View,
    apply_attributes,
    container_source,
    find_only_matrix,
)
from cec_mpi.errors import InputError
from cec_mpi.store.files.formats import import_library
from cec_mpi.text import plural

_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")


def zarr_source(path: Path, inner_path: str, options: EncodeOptions) -> Source:
    """Return the source of a Zarr array, or of an array in a group; by default its only matrix."""
    zarr = import_library("zarr", path)
    try:
        node = _open_node(path)
        if not inner_path and isinstance(node, zarr.Group):
            names = [f"/{name}" for name, array in node.arrays() if array.ndim == 2]
            names += [f"/{name}" for name, group in node.groups() if _is_sparse_group(group)]
            inner_path = find_only_matrix(path, sorted(names))
        if inner_path:
            try:
                node = node[inner_path.strip("/")]
            except (KeyError, IndexError, ValueError):
                raise InputError(f"{path} has no array {inner_path}") from None
        if not isinstance(node, zarr.Array):
            problem, advice = "a group", ""
            if _is_sparse_group(node):
                problem = "a sparse matrix in Zarr, which encode cannot read"
                advice = ": save it with scipy.sparse.save_npz"
            raise InputError(f"{path}::{inner_path} is {problem}, expected an array{advice}")
        stamps = _directory_stamps(path, inner_path)
        with _open_zarr(path, inner_path) as array:
            view = zarr_view(array, f"{path}::{inner_path}" if inner_path else str(path), options)
            shape = array.shape
    except InputError:
        raise
    except Exception as error:
        raise read_error(path, error) from None
    current_stamps = partial(_directory_stamps, path, inner_path)
    return container_source(_open_zarr, path, inner_path, shape, view, stamps, current_stamps)


def zarr_view(array: Any, name: str, options: EncodeOptions) -> View:
    """Return the view of a Zarr array as X.

    Raises
    ------
    InputError
        Attributes change its values, and neither ``raw_values`` nor ``decode_cf`` is set; or they
        cannot be decoded.
    """
    attributes = dict(array.attrs)
    is_xarray_format = array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes
    if is_xarray_format and array.fill_value is not None:  # xarray uses it as _FillValue
        attributes.setdefault("_FillValue", array.fill_value)
    warnings: tuple[str, ...] = ()
    missing_chunks = array.nchunks - array.nchunks_initialized
    if missing_chunks > 0:
        fill = array.fill_value  # without a fill value, zarr does not store chunks of zeros
        substitute = "0, because it has no fill value" if fill is None else f"its fill value {fill}"
        warnings = (
            f"{name} lacks {missing_chunks} of its {plural(array.nchunks, 'chunk')}, and missing "
            f"entries are read as {substitute}",
        )
    view = View(name, np.dtype(array.dtype), warnings=warnings)
    return apply_attributes(view, attributes, options)


def _open_node(path: Path) -> Any:
    """Open an array or group without consolidated metadata, which may be outdated."""
    zarr = import_library("zarr", path)
    node = zarr.open(path, mode="r")
    if isinstance(node, zarr.Group):
        return zarr.open_group(path, mode="r", use_consolidated=False)
    return node


def _is_sparse_group(group: Any) -> bool:
    return str(group.attrs.get("encoding-type", "")).startswith(("csr", "csc"))


def _directory_stamps(path: Path, inner_path: str) -> tuple[str, ...]:
    """Return one stamp for all files of a Zarr array."""
    directory = path / inner_path.strip("/")
    stamps = sorted(
        f"{file.relative_to(directory)} {file_stamps(file)[0]}"
        for file in directory.rglob("*")
        if file.is_file()
    )
    digest = xxhash.xxh3_128_hexdigest("\n".join(stamps).encode(errors="surrogateescape"))
    return (f"{len(stamps)} files {digest}",)


def is_zarr(path: Path) -> bool:
    """Return whether a directory is a Zarr array or group."""
    return any((path / name).exists() for name in _ZARR_FILES)


@contextmanager
def _open_zarr(path: Path, inner_path: str) -> Iterator[Any]:
    node = _open_node(path)
    yield node[inner_path.strip("/")] if inner_path else node
