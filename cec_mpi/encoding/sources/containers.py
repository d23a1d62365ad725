"""Arrays in HDF5 files and Zarr directories."""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources.conventions import (
    Decoder,
    changing_attributes,
    make_decoder,
    refuse,
)
from cec_mpi.encoding.sources.source import Source, stamps_of, unreadable
from cec_mpi.errors import InputError
from cec_mpi.files.formats import library
from cec_mpi.text import as_text, few, plural

_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
_LISTED = 5
_NETCDF = ("_Netcdf4Coordinates", "_Netcdf4Dimid", "DIMENSION_LIST")  # attributes that it writes
_OF_MATLAB = ("#refs#", "#subsystem#")  # groups of what cells and objects hold
_OTHERS = {
    b"CDF": "a classic NetCDF file, which nccopy -k nc4 converts to NetCDF-4",
    b"\x0e\x03\x13\x01": "an HDF4 file, which h4toh5 converts to HDF5",
    b"MATLAB 5.0": "a MATLAB file before version 7.3: use save(..., '-v7.3')",
}


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
    """An array in a container, which is opened for each read."""

    kind: str
    path: Path
    inner: str
    view: View

    def __getitem__(self, places: tuple[slice, slice]) -> Any:
        try:
            with _OPEN[self.kind](self.path, self.inner) as array:
                return self.view.read(array, places)
        except (OSError, MemoryError, InputError):
            raise
        except Exception as error:  # the libraries raise many kinds of errors for a damaged file
            name = f"{self.path}::{self.inner}" if self.inner else self.path
            raise unreadable(name, error) from None


def _source(
    kind: str,
    path: Path,
    inner: str,
    shape: Any,
    view: View,
    stamps: tuple[str, ...],
    look: Callable[[], tuple[str, ...]],
) -> Source:
    return Source(
        name=view.name,
        array=ContainerArray(kind, path, inner, view),
        shape=view.shape(shape),
        dtype=view.dtype,
        warning="; ".join(view.warnings),
        stamps=stamps,
        stamps_now=look,
        copies=view.copies,
    )


def with_attributes(
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
    found = changing_attributes(attributes, view.dtype)
    if not options.decode_cf:
        refuse(view.name, found)
        return replace(view, unwritten=unwritten)
    decoder = make_decoder(view.name, found, view.dtype, unwritten)
    return replace(view, decoder=decoder, dtype=decoder.dtype)


# HDF5.


def hdf5_source(path: Path, inner: str, options: EncodeOptions) -> Source:
    """Return the source of a dataset of an HDF5 file, by default its only matrix."""
    h5py = library("h5py", path)
    try:
        stamps = stamps_of(path)
        with h5py.File(path, "r") as file:
            inner = inner or _only(path, _matrices(file))
            dataset = _found(file, path, inner)
            view = hdf5_view(dataset, f"{path}::{inner}", options)
            stamps += stamps_of(*view.files)
            shape = dataset.shape
    except InputError:
        raise
    except Exception as error:
        raise not_hdf5(path) or unreadable(path, error) from None
    look = partial(stamps_of, path, *view.files)
    return _source("hdf5", path, inner, shape, view, stamps, look)


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
        By default those of the dataset.

    Raises
    ------
    InputError
        It cannot be read, parts of it are missing, or its numbers differ from the stored ones.
    """
    view = View(name, dataset.dtype)
    if _is_of_columns(dataset):
        _check_matlab(dataset, name)
        shape = " x ".join(map(str, view.shape(dataset.shape)[::-1]))
        view = replace(
            view,
            transposed=True,
            warnings=(f"{name} was written column by column: X is {shape}, as in MATLAB",),
        )
    codes = library("h5py", name).check_enum_dtype(dataset.dtype)
    if codes and not options.raw_values:
        raise InputError(
            f"{name} is an enumeration ({few(list(codes), _LISTED)}), whose numbers are codes: "
            "expected numbers, or --raw-values, which encodes the codes"
        )
    _check_filters(dataset, name)
    files, missing = _stored_elsewhere(dataset, name), _unwritten_part(dataset)
    if missing:
        view = replace(
            view,
            warnings=(
                *view.warnings,
                f"{name} {missing}, and they are read as its fill value {dataset.fillvalue}",
            ),
        )
    for axis, scales in enumerate(dataset.dims):
        if (length := _length_of(scales)) > dataset.shape[axis]:
            said = f"{name} holds {dataset.shape[axis]} of the {length} entries of axis {axis}"
            view = replace(view, warnings=(*view.warnings, f"{said}: the others were not written"))
    view = replace(view, files=files)
    attributes = dataset.attrs if attributes is None else attributes
    return with_attributes(view, attributes, options, _netcdf_fill(dataset))


def _matrices(file: Any) -> list[str]:
    """Return the names of the matrices in a file."""
    found: list[str] = []

    def collect(name: str, item: Any) -> None:
        is_matrix = getattr(item, "ndim", None) == 2 or is_sparse_group(item)
        if is_matrix and name.partition("/")[0] not in _OF_MATLAB:
            found.append(f"/{name}")

    file.visititems(collect)
    return found


def _found(file: Any, path: Path, inner: str) -> Any:
    """Return a dataset of a file."""
    try:
        item = file[inner]
    except KeyError as error:  # also for a link to another file
        if file.get(inner, getlink=True) is not None:
            raise InputError(
                f"{path}::{inner} is a link to what does not exist: {error.args[0]}"
            ) from None
        raise InputError(
            f"{path} has no dataset {inner}, expected one of {few(_matrices(file), _LISTED)}"
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
    for magic, what in _OTHERS.items():
        if begin.startswith(magic):
            return InputError(f"{path} is {what}, expected HDF5")
    return None


def _is_of_columns(dataset: Any) -> bool:
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
    h5py = library("h5py", name)
    stored = dataset.id.get_create_plist()
    filters = [stored.get_filter(k) for k in range(stored.get_nfilters())]
    if all(h5py.h5z.filter_avail(each[0]) for each in filters):
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
    h5py = library("h5py", dataset.name)
    defined = dataset.id.get_create_plist().fill_value_defined()
    is_usual = defined != h5py.h5d.FILL_VALUE_USER_DEFINED or dataset.dtype.kind not in "iuf"
    if is_usual or not any(name in dataset.attrs for name in _NETCDF):
        return None
    value = dataset.fillvalue
    return value if value and np.isfinite(value) else None


def _length_of(scales: Any) -> int:
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
    return _lacking(dataset.shape, dataset.chunks, dataset.id.get_num_chunks())


def _lacking(shape: tuple[int, ...], chunks: tuple[int, ...], present: int) -> str:
    total = math.prod(-(-length // size) for length, size in zip(shape, chunks, strict=True))
    if present >= total:
        return ""
    return f"lacks {total - present} of its {plural(total, 'chunk')}"


def _stored_elsewhere(dataset: Any, name: str) -> tuple[Path, ...]:
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
        for source in {each[1:3]: each for each in dataset.virtual_sources()}.values():
            files += _check_virtual(dataset, source, name)
    return tuple(dict.fromkeys(files))


def _check_virtual(dataset: Any, source: Any, name: str) -> list[Path]:
    """Return the files of a source of a virtual dataset, after opening it."""
    h5py = library("h5py", name)
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
            files = [path, *_stored_elsewhere(found, f"{path}::{source.dset_name}")]
            selected = source.src_space
            if selected.get_select_type() == h5py.h5s.SEL_HYPERSLABS:
                last = selected.get_select_bounds()[1]
                if any(end >= length for end, length in zip(last, found.shape, strict=True)):
                    raise InputError(
                        f"{name} is a virtual dataset, whose source {path}::{source.dset_name} has "
                        f"shape {found.shape}: expected at least {tuple(n + 1 for n in last)}"
                    )
            return [each for each in files if each != where]
    except InputError:
        raise
    except Exception as error:
        raise unreadable(
            f"{name} is a virtual dataset, whose source {path}::{source.dset_name}", error
        ) from None


# Zarr.


def zarr_source(path: Path, inner: str, options: EncodeOptions) -> Source:
    """Return the source of a Zarr array, or of an array in a group, by default its only matrix."""
    zarr = library("zarr", path)
    try:
        node = _zarr_node(path)
        if not inner and isinstance(node, zarr.Group):
            matrices = [f"/{name}" for name, array in node.arrays() if array.ndim == 2]
            matrices += [f"/{name}" for name, group in node.groups() if _is_sparse_in_zarr(group)]
            inner = _only(path, sorted(matrices))
        if inner:
            try:
                node = node[inner.strip("/")]
            except (KeyError, IndexError, ValueError):
                raise InputError(f"{path} has no array {inner}") from None
        if not isinstance(node, zarr.Array):
            is_sparse = _is_sparse_in_zarr(node)
            what = "a sparse matrix in Zarr, which encode cannot read" if is_sparse else "a group"
            advice = ": save it with scipy.sparse.save_npz" if is_sparse else ""
            raise InputError(f"{path}::{inner} is {what}, expected an array{advice}")
        stamps = _stamps_within(path, inner)
        with _open_zarr(path, inner) as array:
            view = zarr_view(array, f"{path}::{inner}" if inner else str(path), options)
            shape = array.shape
    except InputError:
        raise
    except Exception as error:
        raise unreadable(path, error) from None
    look = partial(_stamps_within, path, inner)
    return _source("zarr", path, inner, shape, view, stamps, look)


def zarr_view(array: Any, name: str, options: EncodeOptions) -> View:
    """Return how X follows from a Zarr array.

    Raises
    ------
    InputError
        Its numbers differ from the stored ones.
    """
    attributes = dict(array.attrs)
    is_of_xarray = array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes
    if is_of_xarray and array.fill_value is not None:  # which it takes for _FillValue
        attributes.setdefault("_FillValue", array.fill_value)
    view = View(name, np.dtype(array.dtype))
    missing = array.nchunks - array.nchunks_initialized
    if missing > 0:
        fill = array.fill_value  # zarr leaves chunks of zeros out, too, if there is none
        read_as = "0, since it has no fill value" if fill is None else f"its fill value {fill}"
        view = replace(
            view,
            warnings=(
                f"{name} lacks {missing} of its {plural(array.nchunks, 'chunk')}, and they are "
                f"read as {read_as}",
            ),
        )
    return with_attributes(view, attributes, options)


def _zarr_node(path: Path) -> Any:
    """Open an array or group. Consolidated metadata may be older than the arrays, so not by it."""
    zarr = library("zarr", path)
    node = zarr.open(path, mode="r")
    if isinstance(node, zarr.Group):
        return zarr.open_group(path, mode="r", use_consolidated=False)
    return node


def _is_sparse_in_zarr(group: Any) -> bool:
    return str(group.attrs.get("encoding-type", "")).startswith(("csr", "csc"))


def _stamps_within(path: Path, inner: str) -> tuple[str, ...]:
    """Return one stamp for all files of a Zarr array."""
    directory = path / inner.strip("/")
    found = sorted(
        f"{file.relative_to(directory)} {stamps_of(file)[0]}"
        for file in directory.rglob("*")
        if file.is_file()
    )
    total = xxhash.xxh3_128_hexdigest("\n".join(found).encode(errors="surrogateescape"))
    return (f"{len(found)} files {total}",)


def is_zarr(path: Path) -> bool:
    """Whether a directory is a Zarr array or group."""
    return any((path / name).exists() for name in _ZARR_FILES)


def _only(path: Path, matrices: list[str]) -> str:
    if len(matrices) != 1:
        which = few(matrices, _LISTED)
        raise InputError(
            f"{path} has {len(matrices)} matrices ({which}): choose one with {path}::/NAME"
        )
    return matrices[0]


@contextmanager
def _open_hdf5(path: Path, inner: str) -> Iterator[Any]:
    with library("h5py", path).File(path, "r") as file:
        yield file[inner]


@contextmanager
def _open_zarr(path: Path, inner: str) -> Iterator[Any]:
    node = _zarr_node(path)
    yield node[inner.strip("/")] if inner else node


_OPEN = {"hdf5": _open_hdf5, "zarr": _open_zarr}
