"""Sparse matrices become stores: all sources give the same store, bad input leaves no files."""

import gzip
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import mmwrite

from cec_mpi import encode
from cec_mpi.encoding import sparse as sparse_encoding
from cec_mpi.encoding.sources import market as market_reading
from cec_mpi.errors import InputError
from cec_mpi.store import decode
from helpers.sparse import SlicedArray, random_sparse, write_group, write_npz
from helpers.stores import read_files

X = random_sparse(60, 17)
TALL = random_sparse(3000, 5000, 0.001)  # of more than one slice


def write_market(path, X):
    mmwrite(path, X, precision=17)
    return str(path)


def write_gzipped(path, X):
    compressed = path.with_name(f"{path.name}.gz")
    compressed.write_bytes(gzip.compress(Path(write_market(path, X)).read_bytes()))
    return str(compressed)


def save_npz(path, X):
    sp.save_npz(path, X)
    return str(path)


SOURCES = {
    "csr": lambda d, X: X,
    **{form: lambda d, X, form=form: X.asformat(form) for form in ("csc", "coo", "lil", "dok")},
    "slices": lambda d, X: SlicedArray(X, lambda rows: X[rows].tocsc()),
    "csr.npz": lambda d, X: save_npz(d / "X.npz", X),
    "coo.npz": lambda d, X: save_npz(d / "X.npz", X.tocoo()),
    "big-endian.npz": lambda d, X: write_npz(
        d / "X.npz", X, data=X.data.astype(X.dtype.newbyteorder(">"))
    ),
    "csr.h5": lambda d, X: write_group(d / "X.h5", X),
    "the only group": lambda d, X: write_group(d / "X.h5ad", X).partition("::")[0],
    "csc.h5": lambda d, X: write_group(d / "X.h5", X.tocsc(), np.bytes_("csc_matrix")),
    "without encoding": lambda d, X: write_group(d / "X.h5", X, None),
    "mtx": lambda d, X: write_market(d / "X.mtx", X),
    "mtx.gz": lambda d, X: write_gzipped(d / "X.mtx", X),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_store(name, tmp_path):
    for dtype in ("float64",) if "mtx" in name else ("float64", "float32"):
        matrix = X.astype(dtype)
        encode(matrix, tmp_path / f"{dtype} expected", 4, copies=2)
        source = SOURCES[name](tmp_path, matrix)
        assert encode(source, tmp_path / dtype, 4, copies=2).dtype == dtype
        assert read_files(tmp_path / dtype) == read_files(tmp_path / f"{dtype} expected")


def test_pieces_give_the_same_store(tmp_path, monkeypatch):
    matrix = sp.csr_array(sp.vstack([X[:20], sp.csr_array((3, 17)), X[:20]]))
    encode(matrix, tmp_path / "expected", 3, copies=2)
    monkeypatch.setattr(sparse_encoding, "_PIECE_ENTRIES", 2)
    monkeypatch.setattr(market_reading, "_BLOCK_BYTES", 7)
    for name in ("slices", "csr.h5", "mtx"):
        encode(SOURCES[name](tmp_path, matrix), tmp_path / name, 3, copies=2)
        assert read_files(tmp_path / name) == read_files(tmp_path / "expected")


def round_trip(source, directory, **options):
    """Encode a matrix with two copies by default, and decode the store."""
    options = options or {"copies": 2}
    store, name = directory / f"{next(iter(options))}", "npz" if "copies" in options else "npy"
    encode(source, store, 3, **options)
    decode(store, directory / f"back.{name}")
    load = sp.load_npz if "copies" in options else np.load
    return load(directory / f"back.{name}")


# --- numbers ------------------------------------------------------------------------------


def mtx(*lines, head="%%MatrixMarket matrix coordinate real general"):
    def write(directory):
        (directory / "X.mtx").write_bytes("\n".join([head, *lines, ""]).encode("latin-1"))
        return str(directory / "X.mtx")

    return write


def coordinates(field, *lines):
    return mtx(*lines, head=f"%%MatrixMarket matrix coordinate {field}")


def npz(matrix=X, form="csr", **replaced):
    return lambda d: write_npz(d / "X.npz", matrix, form, **replaced)


def in_memory(matrix):
    return lambda _: matrix


def unsorted_csr():
    """A matrix whose flags still claim sorted and distinct columns."""
    matrix = sp.csr_array(([1.0, 2, 4, 8], [0, 1, 2, 0], [0, 3, 4]), shape=(2, 3))
    assert matrix.has_canonical_format
    matrix.indices[:3] = [2, 0, 2]
    return matrix


COO, HALF = X.tocoo(), X.data.astype("f2")
POSITIONS = np.array([2, 0, 2, 2, 0]), np.array([1, 3, 0, 1, 3])
REPEATED = sp.coo_array((np.array([1.0, 2, 4, 8, 16]), POSITIONS), shape=(4, 5))
WHOLE = (abs(X) * 10).astype(int)
COMMENTS = ["% N\xf6rlund", "  % indented", "", "2 2 2", "% here", "1 1 3", "2 2 4 % too"]
NUMBERS = {
    "repeated": (npz(REPEATED, "coo", row=REPEATED.row, col=REPEATED.col), REPEATED.toarray()),
    "unsorted": (in_memory(unsorted_csr()), [[2, 0, 5], [8, 0, 0]]),
    "csr of float16": (npz(data=HALF), X.toarray().astype("f2")),
    **{
        dtype: (in_memory(WHOLE.astype(dtype)), WHOLE.toarray().astype(dtype))
        for dtype in ("?", "i1", "u2", "i8")
    },
    "comments": (mtx(*COMMENTS), [[3, 0], [0, 4]]),
    "spaces": (
        mtx(" 2 2 1", " 2 1", head=" %MatrixMarket MATRIX coordinate pattern general"),
        [[0, 0], [1, 0]],
    ),
    **{
        f"{field} {number}": (
            coordinates(field, "2 2 1", f"2 1 {number}"),
            [[0, mirrored], [value, 0]],
        )
        for field, number, value, mirrored in (
            ("real general", "1.5D+02", 150.0, 0),
            ("real general", "-.5d-1", -0.05, 0),
            ("integer general", str(2**63), 2.0**63, 0),
            ("unsigned-integer symmetric", str(2**64 - 1), 2.0**64, 2.0**64),
            ("unsigned-integer skew-symmetric", "5", 5, -5),
            ("integer skew-symmetric", str(1 - 2**63), -(2.0**63), 2.0**63),
        )
    },
}


@pytest.mark.filterwarnings("ignore:.*(is sparse|rounded)")
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_read_for_copies_and_for_codes(name, tmp_path):
    make, expected = NUMBERS[name]
    source = make(tmp_path)
    copies = round_trip(source, tmp_path, copies=2)
    assert copies.has_canonical_format
    assert copies.dtype == (np.float32 if "float16" in name else np.float64)
    np.testing.assert_array_equal(copies.toarray(), expected)
    code = round_trip(source, tmp_path, recovery=1)
    np.testing.assert_allclose(code, expected, rtol=1e-6 if "float16" in name else 1e-14)
    if name == "unsorted":
        assert source.indices.tolist() == [2, 0, 2, 0]  # arrays of the caller are not changed


def test_stored_zeros_are_kept(tmp_path):
    matrix = sp.csr_array((np.array([0.0, 3.0]), np.array([0, 2]), np.array([0, 1, 2])))
    assert round_trip(matrix, tmp_path).nnz == 2


# --- bad input ----------------------------------------------------------------------------


def with_entry(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


def truncate(path):
    file = path.partition("::")[0]
    os.truncate(file, Path(file).stat().st_size // 2)
    return path


def with_arrays(X, **arrays):
    X = X.copy()
    for name, value in arrays.items():
        setattr(X, name, value)
    return in_memory(X)


def h5(matrix=X, encoding="csr_matrix", **arrays):
    return lambda d: write_group(d / "X.h5", matrix, encoding, **arrays)


def dense(write, name):
    return lambda d: write(d / name, X.toarray()) or str(d / name)


def sliced(read, matrix=X):
    return in_memory(SlicedArray(matrix, read))


def repeated(value, dtype):
    return sp.coo_array((np.full(2, value, dtype), ([1, 1], [2, 2])), shape=(4, 4))


HUGE = np.longdouble("1e400")
NAN, INF = with_entry(X.data, 3, np.nan), with_entry(X.data, 3, -np.inf)
ROW, COLUMN = (int(index[3]) for index in X.tocoo().coords)
COMPLEX = "complex numbers (complex128), which are not supported"
SYM, SKEW = "real symmetric", "real skew-symmetric"
MEMORY = "do not fit in memory"
POINTERS = "expected ascending numbers"
OVERFLOW = "has repeated entries whose sum overflows"

BAD = {
    "NaN": (with_arrays(X, data=NAN), f"holds nan at row {ROW}, column {COLUMN} "),
    "infinity h5": (h5(data=INF), f"-inf at row {ROW}, col"),
    "a sum that overflows": (in_memory(repeated(1e308, float)), "holds inf at row 1, column 2"),
    "beyond float64": (npz(data=np.full(X.nnz, HUGE)), "has numbers that float64 cannot hold"),
    "complex": (in_memory(X * 1j), COMPLEX),
    "complex h5": (h5(data=X.data * 1j), COMPLEX),
    "pointers beyond the end": (h5(indptr=with_entry(X.indptr, -1, 10**6)), POINTERS),
    "few indices": (h5(indices=X.indices[:-3]), "expected an index for each value"),
    "no shape h5": (h5(shape=None), "has no attribute shape"),
    "another encoding h5": (h5(X, "array"), "holds array: expected csr"),
    "a truncated h5": (lambda d: truncate(write_group(d / "X.h5", X)), "cannot be read"),
    "another group": (
        lambda d: write_group(d / "X.h5ad", X).replace("::/X", "::/raw"),
        "raw is not a sparse matrix (a group with data, indices and indptr); expected one of ",
    ),
    "no file": (lambda d: str(d / "X.npz"), "X.npz does not exist"),
    "no rows": (in_memory(sp.csr_array((0, 5))), "has shape (0, 5): expected at least one"),
    "no entry": (in_memory(sp.csr_array((5, 5))), "has no nonzero entry"),
    "dense": (in_memory(X.toarray()), "a dense X needs a recovery threshold (recovery=L)"),
    "dense npz": (dense(np.savez, "X.npz"), "expected a file written by scipy.sparse.save_npz"),
    "dense mtx": (dense(mmwrite, "X.mtx"), "X.mtx is dense; a dense X needs a recovery threshold"),
    "slices that raise": (sliced(lambda rows: 1 / 0), "ZeroDivisionError"),
    "dense slices": (sliced(X.toarray().__getitem__), "returned rows as ndarray"),
    "few rows": (sliced(lambda rows: X[:3]), "of shape (3, 17) from row 0 on: expected (60, 17)"),
    "slices of float32": (sliced(lambda rows: X[rows].astype("f4")), "returned float32: expected"),
    "wrong last slice": (
        sliced(lambda rows: TALL[max(0, rows.start - 1) : rows.stop - 1], TALL),
        "returned rows of shape (",
    ),
}
# Files and arrays that are read by the same code for copies and for codes.
BAD_FOR_BOTH = {
    "high": (
        with_arrays(X, indices=with_entry(X.indices, 4, 17)),
        "csr_array is not a valid sparse",
    ),
    "high npz": (npz(indices=with_entry(X.indices.astype(np.int64), 4, 2**40)), "must be < 17"),
    "text npz": (npz(data=X.data.astype(str)), "real numbers"),
    "descending pointers": (npz(indptr=with_entry(X.indptr, 5, 10**6)), POINTERS),
    "pointers of floats": (npz(indptr=X.indptr * 1.0), "has indices of float64: expected whole"),
    "many columns": (npz(COO, "coo", col=np.append(X.indices, 1)), "must have the same length"),
    "one length": (npz(shape=np.array([60])), "expected (rows, columns)"),
    "a FIFO": (lambda d: os.mkfifo(d / "X.mtx") or str(d / "X.mtx"), "X.mtx is a FIFO, expected"),
    "columns beyond memory": (npz(shape=np.array([60, 2**60])), MEMORY),
    "another format": (npz(format=np.array(b"xyz")), "has format 'xyz': expected one of csr"),
    "a fill value npz": (npz(fill_value=np.array(7.0)), "has the fill value 7.0, expected 0"),
    "a truncated npz": (lambda d: truncate(save_npz(d / "X.npz", X)), "X.npz cannot be read"),
    "a sum beyond int8": (in_memory(repeated(100, np.int8)), f"{OVERFLOW} int8"),
    "row 0": (mtx("2 2 1", "0 1 3"), "'0 1 3', expected a row from 1 to 2"),
    "a large row": (mtx("2 2 1", f"{10**30} 1 3"), "expected a row from 1 to 2"),
    "few entries": (mtx("2 2 3", "1 1 3"), "has 1 entry, but its header requires 3"),
    "many entries": (
        mtx("2 2 1", "1 1 3", "2 2 1"),
        "at least 2 entries, but its header requires 1",
    ),
    "NUL": (mtx("2 2 1", "1 1 3\0" + "99"), "line 3 is '1 1 3\\x0099', exp"),
    "no value": (
        mtx("3 3 2", "", "1 1 0.5", "% a comment", "2 3"),
        "X.mtx: line 6 is '2 3', expected a row, a column and a finite number",
    ),
    "complex mtx": (coordinates("complex general", "2 2 1", "1 1 3 1"), "holds complex numbers"),
    "both triangles": (coordinates(SYM, "2 2 2", "2 1 5", "1 2 5"), "has entries at 2, 1 and at 1"),
    "a skew diagonal": (coordinates(SKEW, "2 2 1", "2 2 5"), "skew-symmetric and has 5.0 at 2, 2"),
    "a wide skew matrix": (coordinates(SKEW, "2 3 1", "2 1 5"), "expected a square matrix"),
    **{
        f"{field} {number}": (
            coordinates(f"{field} general", "2 2 1", f"1 1 {number}"),
            f"line 3 is '1 1 {number}', expected a row, a column and ",
        )
        for field, numbers in {
            "real": "nan 0x1A 1e400",
            "integer": f"1e3 3.0 {2**64} {-(2**63) - 1}",
            "unsigned-integer": "-3",
        }.items()
        for number in numbers.split()
    },
}


@pytest.mark.parametrize("name", [*BAD, *BAD_FOR_BOTH])
def test_bad_input_has_one_message_and_leaves_no_files(name, tmp_path):
    make, message = (BAD | BAD_FOR_BOTH)[name]
    source = make(tmp_path)
    (tmp_path / "here").mkdir()
    for options in ({"copies": 2}, {"recovery": 2})[: 1 + (name in BAD_FOR_BOTH)]:
        with pytest.raises(InputError) as error:
            encode(source, tmp_path / "here" / "S", 4, **options)
        assert message in str(error.value)
        assert "\n" not in str(error.value)
        assert not list((tmp_path / "here").iterdir())


def test_numbers_beyond_float32_name_the_option(tmp_path):
    with pytest.raises(InputError, match="use dtype='float64'"):
        encode(X * 1e300, tmp_path / "S", 3, copies=2, dtype="float32")
    assert not list(tmp_path.iterdir())


def test_a_file_that_changes_during_the_encode_is_refused(tmp_path, monkeypatch):
    path = save_npz(tmp_path / "X.npz", X)
    read = sparse_encoding.read_sparse

    def read_and_change(path):
        rows = read(path)
        save_npz(path, X * 2 + sp.csr_array(np.eye(60, 17)))
        return rows

    monkeypatch.setattr(sparse_encoding, "read_sparse", read_and_change)
    with pytest.raises(InputError, match="changed during the encode"):
        encode(path, tmp_path / "S", 3, copies=2)
    assert [file.name for file in tmp_path.iterdir()] == ["X.npz"]


# --- attributes, and MATLAB ---------------------------------------------------------------


@pytest.mark.parametrize("node", ["X", "X/data"])
def test_attributes_of_a_sparse_matrix_in_hdf5_apply(node, tmp_path):
    source = write_group(tmp_path / "X.h5ad", X)
    with h5py.File(tmp_path / "X.h5ad", "a") as file:
        file[node].attrs["scale_factor"] = 0.5
    with pytest.raises(InputError, match=r"X/data has attributes .*scale_factor \(0\.5\)"):
        encode(source, tmp_path / "S", 3, copies=2)
    for option, expected in (("raw_values", X), ("decode_cf", X * 0.5)):
        (tmp_path / option).mkdir()
        decoded = round_trip(source, tmp_path / option, copies=2, **{option: True})
        assert np.array_equal(decoded.toarray(), expected.toarray())
    with h5py.File(tmp_path / "X.h5ad", "a") as file:
        file[node].attrs["add_offset"] = 1.0
    with pytest.raises(InputError, match=r"add_offset, which would change entries"):
        encode(source, tmp_path / "S", 3, copies=2, decode_cf=True)


def matlab(path, X):
    with h5py.File(path, "w", userblock_size=512) as file:
        group = file.create_group("X")
        group.attrs["MATLAB_class"] = np.bytes_("double")
        group.attrs["MATLAB_sparse"] = np.uint64(X.shape[0])
        columns = X.tocsc()
        group["jc"] = columns.indptr.astype("u8")
        if columns.nnz:
            group["data"], group["ir"] = columns.data, columns.indices.astype("u8")
    return str(path)


def test_a_sparse_matlab_matrix_keeps_its_shape(tmp_path):
    decoded = round_trip(matlab(tmp_path / "X.mat", X), tmp_path)
    assert np.array_equal(decoded.toarray(), X.toarray())
    with pytest.raises(InputError, match=r"is a sparse matrix.*expected no recovery="):
        encode(f"{tmp_path}/X.mat::/X", tmp_path / "code", 3, 2)
    with pytest.raises(InputError, match="::/X has no nonzero entry"):
        encode(matlab(tmp_path / "Y.mat", sp.csr_array((3, 4))), tmp_path / "T", 3, copies=2)
