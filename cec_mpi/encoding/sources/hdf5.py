"""Datasets of HDF5 files."""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources.source import Source, file_stamps, read_error
from cec_mpi.encoding.sources.views import (
    MAX_LISTED,
    View,
    apply_attributes,
    container_source,
    find_only_matrix,
)
from cec_mpi.errors import InputError
from cec_mpi.store.files.formats import import_library
from cec_mpi.text import as_text, plural, truncate

_NETCDF_ATTRIBUTES = ("_Netcdf4Coordinates", "_Netcdf4Dimid", "DIMENSION_LIST")
_MATLAB_GROUPS = ("#refs#", "#subsystem#")  # internal groups for cells and objects
_OTHER_MAGICS = {
    b"CDF": "a classic NetCDF file, which nccopy -k nc4 converts to NetCDF-4",
    b"\x0e\x03\x13\x01": "an HDF4 file, which h4toh5 converts to HDF5",
    b"MATLAB 5.0": "a MATLAB file older than version 7.3 (save it with -v7.3)",
}


def hdf5_source(path: Path, inner_path: str, options: EncodeOptions) -> Source:
    """Return the source of a dataset of an HDF5 file; by default of its only matrix."""
    h5py = import_library("h5py", path)
    try:
        stamps = file_stamps(path)
        with h5py.File(path, "r") as file:
            inner_path = inner_path or find_only_matrix(path, _matrix_names(file))
            dataset = _find_dataset(file, path, inner_path)
            view = hdf5_view(dataset, f"{path}::{inner_path}", options)
            stamps += file_stamps(*view.files)
            shape = dataset.shape
    except InputError:
        raise
    except Exception as error:
        raise foreign_format_error(path) or read_error(path, error) from None
    current_stamps = partial(file_stamps, path, *view.files)
    return container_source(_open_hdf5, path, inner_path, shape, view, stamps, current_stamps)


def hdf5_view(
    dataset: Any, name: str, options: EncodeOptions, attributes: Mapping[str, Any] | None = None
) -> View:
    """Return the view of an h5py dataset as X.

    Parameters
    ----------
    dataset : h5py.Dataset
    name : str
        Name of X, for messages.
    options : EncodeOptions
    attributes : mapping of str to object, optional
        By default the dataset's attributes.

    Raises
    ------
    InputError
        The dataset cannot be read, parts of it are missing, it does not hold numbers, or
        attributes change the meaning of its values.
    """
    warnings = []
    transposed = _is_column_major(dataset)
    if transposed:
        _check_matlab(dataset, name)
        shape = " x ".join(map(str, (dataset.shape or ())[::-1]))
        warnings.append(f"{name} was written column by column: X is {shape}, as in MATLAB")
    members = import_library("h5py", name).check_enum_dtype(dataset.dtype)
    if members and not options.raw_values:
        raise InputError(
            f"{name} is an enumeration ({truncate(list(members), MAX_LISTED)}): "
            "expected numbers, or --raw-values, which encodes the numbers of its members"
        )
    _check_filters(dataset, name)
    files = _referenced_files(dataset, name)
    if unwritten := _describe_unwritten(dataset):
        warnings.append(f"{name} {unwritten} read as its fill value {dataset.fillvalue}")
    for axis, scales in enumerate(dataset.dims):
        if (length := _scale_length(scales)) > dataset.shape[axis]:
            warnings.append(
                f"{name} holds {dataset.shape[axis]} of the {length} entries of axis {axis}: the "
                "other entries were not written"
            )
    view = View(name, dataset.dtype, transposed, files=files, warnings=tuple(warnings))
    attributes = dataset.attrs if attributes is None else attributes
    return apply_attributes(view, attributes, options, _netcdf_fill(dataset))


def _matrix_names(file: Any) -> list[str]:
    """Return the names of the matrices in a file."""
    names: list[str] = []

    def collect(name: str, item: Any) -> None:
        is_matrix = getattr(item, "ndim", None) == 2 or is_sparse_group(item)
        if is_matrix and name.partition("/")[0] not in _MATLAB_GROUPS:
            names.append(f"/{name}")

    file.visititems(collect)
    return names


def _find_dataset(file: Any, path: Path, inner_path: str) -> Any:
    """Return a dataset of a file."""
    try:
        item = file[inner_path]
    except KeyError as error:  # also raised for a broken link
        if file.get(inner_path, getlink=True) is not None:
            raise InputError(f"{path}::{inner_path} is a broken link: {error.args[0]}") from None
        raise InputError(
            f"{path} has no dataset {inner_path}, expected one of "
            f"{truncate(_matrix_names(file), MAX_LISTED)}"
        ) from None
    if hasattr(item, "ndim"):
        return item
    if is_sparse_group(item):
        raise InputError(
            f"{path}::{inner_path} is a sparse matrix, which can only be stored as copies of its "
            "rows: expected no --recovery"
        )
    matlab_class = as_text(item.attrs.get("MATLAB_class", ""))
    problem = "a group, expected a dataset"
    if matlab_class:
        problem = f"a {matlab_class} of MATLAB, expected an array of numbers"
    raise InputError(f"{path}::{inner_path} is {problem}")


def is_sparse_group(node: Any) -> bool:
    """Return whether an HDF5 node is a sparse matrix in AnnData, h5sparse or MATLAB format."""
    if not hasattr(node, "keys"):
        return False
    return "MATLAB_sparse" in node.attrs or {"data", "indices", "indptr"} <= set(node)


def foreign_format_error(path: Path) -> InputError | None:
    """Return the error for a file of a similar format, or None for HDF5 and unknown formats."""
    with path.open("rb") as file:
        start = file.read(16)
    for magic, description in _OTHER_MAGICS.items():
        if start.startswith(magic):
            return InputError(f"{path} is {description}, expected HDF5")
    return None


def _is_column_major(dataset: Any) -> bool:
    """Return whether MATLAB or Octave wrote a dataset, with its dimensions in reverse order."""
    return "MATLAB_class" in dataset.attrs or (
        dataset.name is not None and "OCTAVE_NEW_FORMAT" in dataset.parent.attrs
    )


def _check_matlab(dataset: Any, name: str) -> None:
    """Raise unless a MATLAB array is a nonempty array of numbers."""
    matlab_class = as_text(dataset.attrs.get("MATLAB_class", "double"))
    is_numeric = re.fullmatch(r"u?int(8|16|32|64)|single|double|logical", matlab_class)
    if not is_numeric:
        raise InputError(f"{name} is a {matlab_class} array of MATLAB, expected numbers")
    if dataset.attrs.get("MATLAB_empty", 0):
        shape = " x ".join(map(str, np.ravel(dataset[()]).tolist()))
        raise InputError(f"{name} is empty ({shape}), expected at least one row and one column")


def _check_filters(dataset: Any, name: str) -> None:
    """Raise if the data are compressed with a filter that is not installed."""
    h5py = import_library("h5py", name)
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(k) for k in range(properties.get_nfilters())]
    if all(h5py.h5z.filter_avail(filter_[0]) for filter_ in filters):
        return
    with suppress(ImportError):
        importlib.import_module("hdf5plugin")  # registers its filters
    for filter_id, *_, description in filters:
        if not h5py.h5z.filter_avail(filter_id):
            title = as_text(description).split(";")[0]
            raise InputError(
                f"{name} is compressed with filter {filter_id}{f' ({title})' if title else ''}, "
                "which is not installed: try pip install hdf5plugin"
            )


def _netcdf_fill(dataset: Any) -> Any:
    """Return NetCDF's fill value of entries that were never written.

    None if the file is not from NetCDF, or defines no fill value, or one that is 0 or not finite.
    """
    h5py = import_library("h5py", dataset.name)
    status = dataset.id.get_create_plist().fill_value_defined()
    if status != h5py.h5d.FILL_VALUE_USER_DEFINED or dataset.dtype.kind not in "iuf":
        return None
    if not any(name in dataset.attrs for name in _NETCDF_ATTRIBUTES):
        return None
    value = dataset.fillvalue
    return value if value and np.isfinite(value) else None


def _scale_length(scales: Any) -> int:
    """Return the length of the longest dimension scale of an axis, or 0."""
    try:
        return max((scale.shape[0] for scale in scales.values() if scale.shape), default=0)
    except RuntimeError:  # the scales were deleted, which does not change X
        return 0


def _describe_unwritten(dataset: Any) -> str:
    """Return the start of a message about unwritten entries of a dataset, or ''."""
    if dataset.is_virtual or dataset.external or not dataset.size:
        return ""
    if not dataset.chunks:
        return "" if dataset.id.get_storage_size() else "was never written, and its entries are"
    lengths = zip(dataset.shape, dataset.chunks, strict=True)
    total = math.prod(-(-length // chunk_length) for length, chunk_length in lengths)
    missing = total - dataset.id.get_num_chunks()
    if missing <= 0:
        return ""
    return f"lacks {missing} of its {plural(total, 'chunk')}, and missing entries are"


def _referenced_files(dataset: Any, name: str) -> tuple[Path, ...]:
    """Return the other files that hold data of a dataset: external files, and virtual sources.

    Raises
    ------
    InputError
        HDF5 would return fill values, because a virtual source is missing or a file is too short.
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
            files += _check_virtual_source(dataset, source, name)
    return tuple(dict.fromkeys(files))


def _check_virtual_source(dataset: Any, source: Any, name: str) -> list[Path]:
    """Return the files of a source of a virtual dataset; raise if it is missing or too small."""
    h5py = import_library("h5py", name)
    if "%b" in source.file_name + source.dset_name:  # HDF5 ends a series at a missing file
        return []
    own_path = Path(dataset.file.filename)
    source_path = Path(source.file_name)
    prefix = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", str(own_path.parent))
    paths = [
        Path(prefix) / source_path,
        own_path.parent / source_path,
        source_path,
        own_path.resolve().parent / source_path.name,
    ]
    path = own_path if source.file_name == "." else next((p for p in paths if p.is_file()), None)
    if path is None:
        raise InputError(f"{name} is a virtual dataset, whose source {source_path} does not exist")
    try:
        with nullcontext(dataset.file) if path == own_path else h5py.File(path, "r") as file:
            source_dataset = file[source.dset_name]
            files = [path, *_referenced_files(source_dataset, f"{path}::{source.dset_name}")]
            selection = source.src_space
            if selection.get_select_type() == h5py.h5s.SEL_HYPERSLABS:
                last = selection.get_select_bounds()[1]
                if any(
                    end >= length for end, length in zip(last, source_dataset.shape, strict=True)
                ):
                    raise InputError(
                        f"{name} is a virtual dataset, whose source {path}::{source.dset_name} has "
                        f"shape {source_dataset.shape}: expected at least "
                        f"{tuple(n + 1 for n in last)}"
                    )
            return [file for file in files if file != own_path]
    except InputError:
        raise
    except Exception as error:
        raise read_error(
            f"{name} is a virtual dataset, whose source {path}::{source.dset_name}", error
        ) from None


@contextmanager
def _open_hdf5(path: Path, inner_path: str) -> Iterator[Any]:
    with import_library("h5py", path).File(path, "r") as file:
        yield file[inner_path]
