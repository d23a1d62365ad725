"""Reading of Matrix Market files; every line is validated before pandas parses it."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from csv import QUOTE_NONE
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.sources.csr import check_shape, to_checked_csr
from cec_mpi.encoding.sources.source import read_error
from cec_mpi.encoding.sources.table import float_precision
from cec_mpi.errors import InputError
from cec_mpi.text import plural, shorten

_BLOCK_BYTES = 16 << 20
_MAX_LINE_BYTES = 1 << 16
_INTEGER = rb"[-+]?[0-9]+"
_REAL = rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eEdD][-+]?[0-9]+)?"
_NUMBER_PATTERNS = {  # by field: description of a number, and its pattern
    "real": ("a finite number", _REAL),
    "double": ("a finite number", _REAL),
    "integer": ("a whole number of 64 bits", _INTEGER),
    "unsigned-integer": ("a whole number from 0 to 2^64 - 1", rb"\+?[0-9]+"),
    "pattern": ("", b""),
}
_BANNERS = (["%%matrixmarket", "matrix"], ["%matrixmarket", "matrix"])  # some files have one %
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")
_FORTRAN_EXPONENTS = bytes.maketrans(b"dD", b"ee")


@dataclass(frozen=True)
class _Header:
    """The header of a file.

    Attributes
    ----------
    layout : {"coordinate", "array"}
    field : str
    symmetry : str
    shape : (int, int)
    count : int
        Number of entries in the file.
    next_line : int
        Number of the first line after the header, from 1.
    """

    layout: str
    field: str
    symmetry: str
    shape: tuple[int, int]
    count: int
    next_line: int


def read_market(path: Path) -> Any:
    """Read a Matrix Market file, which may be compressed with gzip.

    Returns
    -------
    csr_array or ndarray
        An ndarray for the format "array".

    Raises
    ------
    InputError
        The file cannot be read, or is not a valid matrix of real numbers. If a line is invalid, the
        message names the first such line.
    """
    open_file: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with open_file(path, "rb") as file:
            header = _read_header(path, file)
            arrays = _read_entries(path, file, header)
    except (OSError, EOFError, zlib.error) as error:
        raise read_error(path, error) from None
    if header.layout == "array":
        return _dense_matrix(path, header, arrays[0])
    return _sparse_matrix(path, header, *arrays)


def _read_header(path: Path, file: BinaryIO) -> _Header:
    banner = file.readline(_MAX_LINE_BYTES)
    fields = banner.decode("latin-1").lower().split()
    if len(fields) != 5 or fields[:2] not in _BANNERS:
        raise _bad_line_error(
            path, 1, banner, "%%MatrixMarket matrix, coordinate or array, a field and a symmetry"
        )
    _, _, layout, field, symmetry = fields
    if field == "complex" or symmetry == "hermitian":
        raise InputError(
            f"{path} holds complex numbers, which are not supported: codes, shards and answers are "
            "real"
        )
    is_pattern = field == "pattern"
    if (
        layout not in ("coordinate", "array")
        or field not in _NUMBER_PATTERNS
        or symmetry not in _SYMMETRIES
        or (is_pattern and (layout == "array" or symmetry == "skew-symmetric"))
    ):
        raise _bad_line_error(path, 1, banner, "a format of Matrix Market")
    line = 1
    while text := file.readline(_MAX_LINE_BYTES):
        line += 1
        if not text.strip() or text.lstrip().startswith(b"%"):
            continue
        sizes = text.split()
        if len(sizes) != 2 + (layout == "coordinate") or not all(
            size.isdigit() and len(size) < 20 for size in sizes
        ):
            expected = "rows, columns and entries" if layout == "coordinate" else "rows and columns"
            raise _bad_line_error(path, line, text, f"numbers of {expected}")
        rows, columns, *stated_count = map(int, sizes)
        shape = check_shape(path, (rows, columns))
        if symmetry != "general" and rows != columns:
            raise _bad_line_error(path, line, text, f"a square matrix, because it is {symmetry}")
        triangle_count = rows * (rows + (1 if symmetry == "symmetric" else -1)) // 2
        implied_count = rows * columns if symmetry == "general" else triangle_count
        count = stated_count[0] if stated_count else implied_count
        return _Header(layout, field, symmetry, shape, count, line + 1)
    raise InputError(f"{path} ends before the line with the numbers of rows and columns")


def _read_entries(path: Path, file: BinaryIO, header: _Header) -> list[NDArray[Any]]:
    """Read the entries after the header: rows, columns and values, or only values."""
    names = ["row", "column"] if header.layout == "coordinate" else []
    names += [] if header.field == "pattern" else ["value"]
    expected, number_pattern = _NUMBER_PATTERNS[header.field]
    patterns = [number_pattern if name == "value" else rb"[0-9]+" for name in names]
    line_pattern = rb"[ \t]*+(?:%b[ \t]*+)?(?:%%[^\n]*+)?\r?\n" % rb"[ \t]++".join(patterns)
    valid_lines = re.compile(rb"(?:%b)*+" % line_pattern)
    if header.layout == "coordinate":
        expected = f"a row, a column and {expected}" if expected else "a row and a column"
    pieces: list[list[NDArray[Any]]] = [[] for _ in names]
    first_line, count = header.next_line, 0
    for block in _read_blocks(file):
        match = valid_lines.match(block)
        end = match.end() if match else 0
        if end < len(block):
            text = block[end : end + _MAX_LINE_BYTES].partition(b"\n")[0]
            raise _bad_line_error(path, first_line + block.count(b"\n", 0, end), text, expected)
        arrays = _parse_entries(block, names, is_real=header.field in ("real", "double"))
        for values, name, pieces_of_array in zip(arrays, names, pieces, strict=True):
            is_bad, expected_value = _find_out_of_range(values, name, header.shape)
            if is_bad is not None:
                line_number, text = _line_of_entry(block, first_line, int(np.argmax(is_bad)))
                raise _bad_line_error(path, line_number, text, expected_value or expected)
            pieces_of_array.append(values)
        count += len(arrays[0])
        first_line += block.count(b"\n")
        if count > header.count:
            break
    if count != header.count:
        found = f"at least {count} entries" if count > header.count else plural(count, "entry")
        raise InputError(f"{path} has {found}, but its header requires {header.count}")
    return [_join_pieces(path, pieces_of_array) for pieces_of_array in pieces]


def _read_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield blocks of whole lines."""
    partial_line = b""
    while data := file.read(_BLOCK_BYTES):
        lines, newline, remainder = data.rpartition(b"\n")
        if newline:
            yield partial_line + lines + newline
            partial_line = remainder
        else:
            partial_line += data
    if partial_line:
        yield partial_line + b"\n"


def _parse_entries(block: bytes, names: list[str], *, is_real: bool) -> list[NDArray[Any]]:
    """Return the entries of valid lines as arrays; integers beyond 64 bits are Python objects."""
    import pandas

    content = re.sub(rb"%[^\n]*", b"", block)

    def read(dtype: Any) -> Any:
        return pandas.read_csv(
            BytesIO(content.translate(_FORTRAN_EXPONENTS) if is_real else content),
            sep=r"\s+",
            header=None,
            names=names,
            dtype=dtype,
            na_filter=False,
            quoting=QUOTE_NONE,
            float_precision=float_precision(),
        )

    try:
        frame = read({"value": np.float64} if is_real else None)
    except pandas.errors.EmptyDataError:  # comments and empty lines
        return [np.empty(0, np.int64) for _ in names]
    except ValueError:  # pandas before version 3 rejects 1e400
        frame = read({"value": str}).astype({"value": np.float64})
    return [frame[name].to_numpy() for name in names]


def _find_out_of_range(
    values: NDArray[Any], name: str, shape: tuple[int, int]
) -> tuple[NDArray[np.bool_] | None, str]:
    """Return a mask of numbers that are out of range, or None, and the expected values."""
    if name == "value":
        if values.dtype.kind in "iu":
            return None, ""
        if values.dtype.kind == "f":
            is_bad, expected = ~np.isfinite(values), ""
        else:
            is_bad = np.array([not -(2**63) <= int(value) < 2**64 for value in values])
            expected = "" if is_bad.any() else "at least 0, because others are 2^63 or more"
            is_bad = is_bad if is_bad.any() else np.array([int(value) < 0 for value in values])
    else:
        limit = shape[name == "column"]
        expected = f"a {name} from 1 to {limit}"
        if values.dtype.kind not in "iu":
            values = np.array([int(value) if int(value) <= limit else 0 for value in values])
        is_bad = (values < 1) | (values > limit)
    return (is_bad, expected) if is_bad.any() else (None, "")


def _join_pieces(path: Path, pieces: list[NDArray[Any]]) -> NDArray[Any]:
    """Join the pieces of an array; if some are int64 and others uint64, the result is uint64."""
    nonempty = [piece for piece in pieces if piece.size] or [np.empty(0, np.int64)]
    dtypes = {piece.dtype for piece in nonempty}
    if len(dtypes) == 1:
        return np.concatenate(nonempty)
    if any(piece.min() < 0 for piece in nonempty):
        raise InputError(
            f"{path} has numbers below 0 and others of 2^63 or more, expected numbers that all "
            "fit int64, or all fit uint64"
        )
    return np.concatenate([piece.astype(np.uint64) for piece in nonempty])


def _negate_signed(path: Path, values: NDArray[Any]) -> NDArray[Any]:
    """Return the negated values of a skew-symmetric matrix, for the mirrored entries."""
    if values.dtype.kind in "iu" and values.size:
        if int(values.max()) >= 2**63 or int(values.min()) == -(2**63):
            raise InputError(
                f"{path} is skew-symmetric with a number of magnitude 2^63 or more, expected "
                "numbers that fit int64, also when negated"
            )
        values = values.astype(np.int64)
    return -values


def _line_of_entry(block: bytes, first_line: int, entry: int) -> tuple[int, bytes]:
    """Return the number and text of the line of an entry; entries are counted from 0."""
    lines = enumerate(block.split(b"\n"), start=first_line)
    entry_lines = ((n, text) for n, text in lines if text.partition(b"%")[0].strip())
    return next(islice(entry_lines, entry, None))


def _bad_line_error(path: Path, number: int, text: bytes, expected: str) -> InputError:
    return InputError(
        f"{path}: line {number} is {shorten(text.decode('latin-1').strip())}, expected {expected}"
    )


def _dense_matrix(path: Path, header: _Header, values: NDArray[Any]) -> NDArray[Any]:
    """Return the matrix of these column-major entries, or of this lower triangle if symmetric."""
    if header.symmetry == "general":
        return values.reshape(header.shape, order="F")
    is_skew = header.symmetry == "skew-symmetric"
    mirrored = _negate_signed(path, values) if is_skew else values
    matrix = np.zeros(header.shape, mirrored.dtype)
    columns, rows = np.triu_indices(header.shape[0], k=int(is_skew))
    matrix[rows, columns] = values
    matrix[columns, rows] = mirrored
    return matrix


def _sparse_matrix(path: Path, header: _Header, rows: Any, columns: Any, values: Any = None) -> Any:
    """Return the matrix of the entries of the file and those implied by symmetry, in CSR."""
    from scipy.sparse import coo_array

    rows, columns = rows.astype(np.int64) - 1, columns.astype(np.int64) - 1
    values = np.ones(len(rows)) if values is None else values
    if header.symmetry != "general":
        _check_symmetry(path, header, rows, columns, values)
        off_diagonal = rows != columns
        is_skew = header.symmetry == "skew-symmetric"
        mirrored = _negate_signed(path, values[off_diagonal]) if is_skew else values[off_diagonal]
        values = np.concatenate([values.astype(mirrored.dtype), mirrored])
        rows, columns = (
            np.concatenate([rows, columns[off_diagonal]]),
            np.concatenate([columns, rows[off_diagonal]]),
        )
    return to_checked_csr(path, coo_array((values, (rows, columns)), shape=header.shape))


def _check_symmetry(path: Path, header: _Header, rows: Any, columns: Any, values: Any) -> None:
    """Raise if an entry and its mirror image would be summed, or a skew diagonal is not 0."""
    lower, upper = rows > columns, rows < columns
    size = header.shape[0]
    if lower.any() and upper.any():
        duplicates = np.intersect1d(
            rows[lower] * size + columns[lower], columns[upper] * size + rows[upper]
        )
        if duplicates.size:
            row, column = divmod(int(duplicates[0]), size)
            raise InputError(
                f"{path} is {header.symmetry} and has entries at {row + 1}, {column + 1} and at "
                f"{column + 1}, {row + 1}: expected one of them, which implies the other"
            )
    bad = np.flatnonzero((rows == columns) & (values != 0))
    if header.symmetry == "skew-symmetric" and bad.size:
        row = rows[bad[0]] + 1
        raise InputError(
            f"{path} is skew-symmetric and has {values[bad[0]]} at {row}, {row}: expected 0 on "
            "the diagonal"
        )
