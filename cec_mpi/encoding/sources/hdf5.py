"""Datasets of HDF5 files."""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources.source import Source, stamps_of, unreadable
from cec_mpi.encoding.sources.views import (
    LISTED,
    View,
    apply_attributes,
    container_source,
    only_matrix,
)
from cec_mpi.errors import InputError
from cec_mpi.store.files.formats import import_library
from cec_mpi.text import as_text, plural, truncate

_NETCDF = ("_Netcdf4Coordinates", "_Netcdf4Dimid", "DIMENSION_LIST")  # attributes that it writes
_MATLAB_GROUPS = ("#refs#", "#subsystem#")  # groups of what cells and objects hold
_OTHER_MAGICS = {
    b"CDF": "a classic NetCDF file, which nccopy -k nc4 converts to NetCDF-4",
    b"\x0e\x03\x13\x01": "an HDF4 file, which h4toh5 converts to HDF5",
    b"MATLAB 5.0": "a MATLAB file before version 7.3: use save(..., '-v7.3')",
}


def hdf5_source(path: Path, inner: str, options: EncodeOptions) -> Source:
    """Return the source of a dataset of an HDF5 file, by default its only matrix."""
    h5py = import_library("h5py", path)
    try:
        stamps = stamps_of(path)
        with h5py.File(path, "r") as file:
            inner = inner or only_matrix(path, _matrices(file))
            dataset = _find_dataset(file, path, inner)
            view = hdf5_view(dataset, f"{path}::{inner}", options)
            stamps += stamps_of(*view.files)
            shape = dataset.shape
    except InputError:
        raise
    except Exception as error:
        raise not_hdf5(path) or unreadable(path, error) from None
    look = partial(stamps_of, path, *view.files)
    return container_source(_open_hdf5, path, inner, shape, view, stamps, look)


def hdf5_view(
    dataset: Any, name: str, options: EncodeOptions, attributes: Mapping[str, Any] | None = None
) -> View:
    """Return how X follows from a dataset of h5py.

    Parameters
    ----------
    dataset : h5py.Dataset
    name : str
        For messages.
    options : EncodeOptions
    attributes : mapping of str to object, optional
        By default the dataset's attributes.

    Raises
    ------
    InputError
        It cannot be read, parts of it are missing, or its numbers differ from the stored ones.
    """
    view = View(name, dataset.dtype)
    if _is_column_major(dataset):
        _check_matlab(dataset, name)
        shape = " x ".join(map(str, view.shape(dataset.shape)[::-1]))
        view = replace(
            view,
            transposed=True,
            warnings=(f"{name} was written column by column: X is {shape}, as in MATLAB",),
        )
    codes = import_library("h5py", name).check_enum_dtype(dataset.dtype)
    if codes and not options.raw_values:
        raise InputError(
            f"{name} is an enumeration ({truncate(list(codes), LISTED)}): "
            "expected numbers, or --raw-values, which encodes the codes of its members"
        )
    _check_filters(dataset, name)
    files, missing = _external_files(dataset, name), _unwritten_part(dataset)
    if missing:
        view = replace(
            view,
            warnings=(
                *view.warnings,
                f"{name} {missing}, and they are read as its fill value {dataset.fillvalue}",
            ),
        )
    for axis, scales in enumerate(dataset.dims):
        if (length := _scale_length(scales)) > dataset.shape[axis]:
            problem = f"{name} holds {dataset.shape[axis]} of the {length} entries of axis {axis}"
            view = replace(
                view, warnings=(*view.warnings, f"{problem}: the others were not written")
            )
    view = replace(view, files=files)
    attributes = dataset.attrs if attributes is None else attributes
    return apply_attributes(view, attributes, options, _netcdf_fill(dataset))


def _matrices(file: Any) -> list[str]:
    """Return the names of the matrices in a file."""
    found: list[str] = []

    def collect(name: str, item: Any) -> None:
        is_matrix = getattr(item, "ndim", None) == 2 or is_sparse_group(item)
        if is_matrix and name.partition("/")[0] not in _MATLAB_GROUPS:
            found.append(f"/{name}")

    file.visititems(collect)
    return found


def _find_dataset(file: Any, path: Path, inner: str) -> Any:
    """Return a dataset of a file."""
    try:
        item = file[inner]
    except KeyError as error:  # also for a link to another file
        if file.get(inner, getlink=True) is not None:
            raise InputError(
                f"{path}::{inner} is a link to what does not exist: {error.args[0]}"
            ) from None
        raise InputError(
            f"{path} has no dataset {inner}, expected one of {truncate(_matrices(file), LISTED)}"
        ) from None
    if hasattr(item, "ndim"):
        return item
    if is_sparse_group(item):
        raise InputError(
            f"{path}::{inner} is a sparse matrix, which is stored as copies of its rows: "
            "expected no --recovery"
        )
    kind = as_text(item.attrs.get("MATLAB_class", ""))
    what = f"a {kind} of MATLAB, expected an array of numbers" if kind else "a group"
    raise InputError(f"{path}::{inner} is {what if kind else what + ', expected a dataset'}")


def is_sparse_group(node: Any) -> bool:
    """Whether a node of HDF5 is a sparse matrix of AnnData, h5sparse or MATLAB."""
    if not hasattr(node, "keys"):
        return False
    return "MATLAB_sparse" in node.attrs or {"data", "indices", "indptr"} <= set(node)


def not_hdf5(path: Path) -> InputError | None:
    """Return the error for a file of a format that others take for HDF5, or None."""
    with path.open("rb") as file:
        begin = file.read(16)
    for magic, what in _OTHER_MAGICS.items():
        if begin.startswith(magic):
            return InputError(f"{path} is {what}, expected HDF5")
    return None


def _is_column_major(dataset: Any) -> bool:
    """Whether MATLAB or Octave wrote a dataset: HDF5 then has the dimensions in reverse order."""
    return "MATLAB_class" in dataset.attrs or (
        dataset.name is not None and "OCTAVE_NEW_FORMAT" in dataset.parent.attrs
    )


def _check_matlab(dataset: Any, name: str) -> None:
    """Refuse arrays of MATLAB that do not hold numbers."""
    kind = as_text(dataset.attrs.get("MATLAB_class", "double"))
    numbers = re.fullmatch(r"u?int(8|16|32|64)|single|double|logical", kind)
    if not numbers:
        raise InputError(f"{name} is a {kind} array of MATLAB, expected numbers")
    if dataset.attrs.get("MATLAB_empty", 0):
        shape = " x ".join(map(str, np.ravel(dataset[()]).tolist()))
        raise InputError(f"{name} is empty ({shape}), expected at least one row and one column")


def _check_filters(dataset: Any, name: str) -> None:
    """Refuse data that were compressed by a filter which is not installed."""
    h5py = import_library("h5py", name)
    stored = dataset.id.get_create_plist()
    filters = [stored.get_filter(k) for k in range(stored.get_nfilters())]
    if all(h5py.h5z.filter_avail(filter_[0]) for filter_ in filters):
        return
    with suppress(ImportError):
        importlib.import_module("hdf5plugin")  # registers its filters
    for number, *_, described in filters:
        if not h5py.h5z.filter_avail(number):
            what = as_text(described).split(";")[0]
            raise InputError(
                f"{name} is compressed by filter {number}{f' ({what})' if what else ''}, which is "
                "not installed: try pip install hdf5plugin"
            )


def _netcdf_fill(dataset: Any) -> Any:
    """Return the number that NetCDF puts where nothing was written, if it is known."""
    h5py = import_library("h5py", dataset.name)
    defined = dataset.id.get_create_plist().fill_value_defined()
    is_usual = defined != h5py.h5d.FILL_VALUE_USER_DEFINED or dataset.dtype.kind not in "iuf"
    if is_usual or not any(name in dataset.attrs for name in _NETCDF):
        return None
    value = dataset.fillvalue
    return value if value and np.isfinite(value) else None


def _scale_length(scales: Any) -> int:
    """Return the length of the dimension scales of an axis; 0 if there are none."""
    try:
        return max((scale.shape[0] for scale in scales.values() if scale.shape), default=0)
    except RuntimeError:  # they were deleted, which leaves X as it is
        return 0


def _unwritten_part(dataset: Any) -> str:
    """Return what of a dataset was never written; empty if nothing is known to be missing."""
    if dataset.is_virtual or dataset.external or not dataset.size:
        return ""
    if not dataset.chunks:
        return "" if dataset.id.get_storage_size() else "was never written"
    return _describe_missing_chunks(dataset.shape, dataset.chunks, dataset.id.get_num_chunks())


def _describe_missing_chunks(shape: tuple[int, ...], chunks: tuple[int, ...], present: int) -> str:
    total = math.prod(-(-length // size) for length, size in zip(shape, chunks, strict=True))
    if present >= total:
        return ""
    return f"lacks {total - present} of its {plural(total, 'chunk')}"


def _external_files(dataset: Any, name: str) -> tuple[Path, ...]:
    """Return the other files that hold the numbers of a dataset.

    Raises
    ------
    InputError
        A file is missing or too short: HDF5 would give fill values.
    """
    for file, offset, size in dataset.external or ():
        path = Path(file)
        expected = offset + min(size, dataset.nbytes)
        if path.is_file() and path.stat().st_size < expected:
            raise InputError(
                f"{name} is stored in {path}, which has {plural(path.stat().st_size, 'byte')}: "
                f"expected {expected}"
            )
    files = [Path(file) for file, *_ in dataset.external or () if Path(file).is_file()]
    if dataset.is_virtual:
        for source in {source[1:3]: source for source in dataset.virtual_sources()}.values():
            files += _check_virtual(dataset, source, name)
    return tuple(dict.fromkeys(files))


def _check_virtual(dataset: Any, source: Any, name: str) -> list[Path]:
    """Return the files of a source of a virtual dataset, after opening it."""
    h5py = import_library("h5py", name)
    if "%b" in source.file_name + source.dset_name:  # of a series, which ends where one is missing
        return []
    where = Path(dataset.file.filename)
    given = Path(source.file_name)
    prefix = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", str(where.parent))
    tried = [Path(prefix) / given, where.parent / given, given, where.resolve().parent / given.name]
    path = where if source.file_name == "." else next((p for p in tried if p.is_file()), None)
    if path is None:
        raise InputError(f"{name} is a virtual dataset, whose source {given} does not exist")
    try:
        with nullcontext(dataset.file) if path == where else h5py.File(path, "r") as file:
            found = file[source.dset_name]
            files = [path, *_external_files(found, f"{path}::{source.dset_name}")]
            selected = source.src_space
            if selected.get_select_type() == h5py.h5s.SEL_HYPERSLABS:
                last = selected.get_select_bounds()[1]
                if any(end >= length for end, length in zip(last, found.shape, strict=True)):
                    raise InputError(
                        f"{name} is a virtual dataset, whose source {path}::{source.dset_name} has "
                        f"shape {found.shape}: expected at least {tuple(n + 1 for n in last)}"
                    )
            return [file for file in files if file != where]
    except InputError:
        raise
    except Exception as error:
        raise unreadable(
            f"{name} is a virtual dataset, whose source {path}::{source.dset_name}", error
        ) from None


@contextmanager
def _open_hdf5(path: Path, inner: str) -> Iterator[Any]:
    with import_library("h5py", path).File(path, "r") as file:
        yield file[inner]
