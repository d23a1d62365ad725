"""Sparse matrices that become stores: all sources are the same, and bad ones leave nothing."""

import gzip
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import mmread, mmwrite

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.store import decode, open_store
from helpers.sparse import Sliced, sparse, write_group, write_npz
from helpers.waiting import LIMIT

X = sparse(60, 17)
TALL = sparse(3000, 5000, 0.001)  # of more than one slice
MARKET = "%%MatrixMarket matrix coordinate real general"


def content(store):
    return {path.name: path.read_bytes() for path in store.iterdir()}


def market(path, X, **options):
    mmwrite(path, X, precision=17, **options)
    return str(path)


def zipped(path, X):
    path.with_suffix(".gz").write_bytes(b"")
    market(path, X)
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return str(packed)


def lines(path, *lines):
    path.write_text("\n".join(["%%MatrixMarket matrix coordinate real general", *lines, ""]))
    return str(path)


def saved(path, X):
    sp.save_npz(path, X)
    return str(path)


def with_kind(path, kind):
    file, _, name = path.partition("::")
    with h5py.File(file, "a") as opened:
        del opened[name].attrs["encoding-type"]
        if kind is not None:
            opened[name].attrs["encoding-type"] = kind
    return path


SOURCES = {
    "csr": lambda d, X: X,
    "matrix": lambda d, X: sp.csr_matrix(X),
    **{kind: lambda d, X, kind=kind: X.asformat(kind) for kind in ("csc", "coo", "lil", "dok")},
    "bsr": lambda d, X: X.tobsr((1, 1)),
    "slices": lambda d, X: Sliced(X, lambda rows: X[rows].tocsc()),
    "csr.npz": lambda d, X: saved(d / "X.npz", X),
    "csc.npz": lambda d, X: saved(d / "X.npz", X.tocsc()),
    "coo.npz": lambda d, X: saved(d / "X.npz", X.tocoo()),
    "bsr.npz": lambda d, X: saved(d / "X.npz", X.tobsr((1, 1))),
    "big-endian.npz": lambda d, X: write_npz(
        d / "X.npz", X, data=X.data.astype(X.dtype.newbyteorder(">"))
    ),
    "csr.h5": lambda d, X: write_group(d / "X.h5", X),
    "csr.h5ad": lambda d, X: write_group(d / "X.h5ad", X),
    "the only group": lambda d, X: write_group(d / "X.h5ad", X).partition("::")[0],
    "csc.h5": lambda d, X: write_group(d / "X.h5", X.tocsc(), "csc_matrix"),
    "a kind of bytes": lambda d, X: with_kind(
        write_group(d / "X.h5", X.tocsc()), np.bytes_("csc_matrix")
    ),
    "no kind": lambda d, X: with_kind(write_group(d / "X.h5", X), None),
    "mtx": lambda d, X: market(d / "X.mtx", X),
    "mtx.gz": lambda d, X: zipped(d / "X.mtx", X),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SOURCES)
def test_each_source_gives_the_same_store(name, dtype, tmp_path):
    if dtype == "float32" and name.startswith("mtx"):
        return  # digits without a precision
    given = X.astype(dtype)
    encode(given, tmp_path / "expected", 4, copies=2)
    assert encode(SOURCES[name](tmp_path, given), tmp_path / "S", 4, copies=2).dtype == dtype
    assert content(tmp_path / "S") == content(tmp_path / "expected")


def decoded(source, directory, **options):
    encode(source, directory / "S", 3, copies=2, **options)
    decode(directory / "S", directory / "back.npz")
    return sp.load_npz(directory / "back.npz")


def test_entries_that_are_repeated_are_summed_and_the_others_sorted(tmp_path):
    at = np.array([2, 0, 2, 2, 0]), np.array([1, 3, 0, 1, 3])
    given = sp.coo_array((np.array([1.0, 2, 4, 8, 16]), at), shape=(4, 5))
    path = write_npz(tmp_path / "X.npz", given, "coo", row=given.row, col=given.col)
    back = decoded(path, tmp_path)
    assert back.has_canonical_format
    assert np.array_equal(back.toarray(), given.toarray())
    twice = sp.csr_array((np.array([1.0, 2, 4]), np.array([3, 1, 3]), np.array([0, 3])))
    (tmp_path / "held").mkdir()
    assert np.array_equal(decoded(twice, tmp_path / "held").toarray(), twice.toarray())
    assert twice.indices.tolist() == [3, 1, 3]  # what a program holds stays as it is


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.float32])
def test_whole_numbers_and_truth_values(dtype, tmp_path):
    given = (abs(X) * 10).astype(dtype)
    assert np.array_equal(decoded(given, tmp_path).toarray(), given.toarray())
    assert not open_store(tmp_path / "S").manifest.rounded


def test_zeros_that_are_stored_stay(tmp_path):
    given = sp.csr_array((np.array([0.0, 3.0]), np.array([0, 2]), np.array([0, 1, 2])))
    assert decoded(given, tmp_path).nnz == 2


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_matrix_market_as_scipy_reads_it(symmetry, field, tmp_path):
    lower = sp.tril(sp.csr_array(np.rint(sparse(9, 9, 0.4).toarray() * 9)), -1)
    whole = lower + lower.T if symmetry == "symmetric" else lower - lower.T
    if field == "pattern" and symmetry != "symmetric":
        whole, symmetry = lower, "general"
    path = tmp_path / "X.mtx"
    mmwrite(path, whole.tocoo(), field=field, symmetry=symmetry, comment="made by hand")
    back = decoded(str(path), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # new SciPy asks for what old has not
        expected = mmread(path)
    assert np.array_equal(back.toarray(), expected.toarray())


def test_matrix_market_keeps_all_digits(tmp_path):
    """0.1 + 0.2 and the like: the fast parsers of others are wrong in the last digit."""
    values = np.random.default_rng(0).standard_normal(400) * 10.0 ** np.linspace(-150, 150, 400)
    given = sp.coo_array((values, (np.arange(400), np.zeros(400, int))))
    back = decoded(market(tmp_path / "X.mtx", given), tmp_path)
    assert np.array_equal(back.data, values)


@pytest.mark.filterwarnings("ignore:.*(is sparse|rounded)")
@pytest.mark.parametrize("way", [{"recovery": 1}, {"copies": 2}], ids=["code", "copies"])
@pytest.mark.parametrize(
    ("head", "number", "value", "mirrored"),
    [
        ("real general", "1.5D+02", 150.0, 0),
        ("real general", "-.5d-1", -0.05, 0),
        ("integer general", "+7", 7, 0),
        ("integer general", str(2**63), 2.0**63, 0),
        ("unsigned-integer symmetric", str(2**64 - 1), 2.0**64, 2.0**64),
        ("unsigned-integer skew-symmetric", "5", 5, -5),
        ("integer skew-symmetric", str(1 - 2**63), -(2.0**63), 2.0**63),
    ],
)
def test_numbers_of_matrix_market(head, number, value, mirrored, way, tmp_path):
    first = f"%%MatrixMarket matrix coordinate {head}"
    path = text(tmp_path, "2 2 1", f"2 1 {number}", first=first)
    encode(path, tmp_path / "S", 3, **way)
    name = "back.npz" if "copies" in way else "back.npy"
    decode(tmp_path / "S", tmp_path / name)
    back = sp.load_npz(tmp_path / name).toarray() if "copies" in way else np.load(tmp_path / name)
    np.testing.assert_allclose(back, [[0, mirrored], [value, 0]], rtol=1e-14)


def test_a_banner_of_matrix_market_with_spaces_and_one_percent_sign(tmp_path):
    path = text(
        tmp_path, " 2 2 1", " 2 1", first=" %MatrixMarket MATRIX coordinate pattern general"
    )
    assert decoded(path, tmp_path).toarray().tolist() == [[0, 0], [1, 0]]


def test_an_array_whose_flags_are_wrong(tmp_path):
    """Who changes indices may leave flags that they are in order, and none of them twice."""
    given = sp.csr_array(([1.0, 2, 4, 8], [0, 1, 2, 0], [0, 3, 4]), shape=(2, 3))
    assert given.has_canonical_format
    given.indices[:3] = [2, 0, 2]
    assert decoded(given, tmp_path).toarray().tolist() == [[2, 0, 5], [8, 0, 0]]


def test_comments_of_matrix_market_in_any_place_and_alphabet(tmp_path):
    lines = [
        f"{MARKET}",
        "% N\xf6rlund",
        "  % indented",
        "",
        "2 2 2",
        "% here",
        "1 1 3",
        "2 2 4 % too",
    ]
    (tmp_path / "X.mtx").write_bytes("\n".join(lines).encode("latin-1"))
    assert decoded(str(tmp_path / "X.mtx"), tmp_path).toarray().tolist() == [[3, 0], [0, 4]]


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_files_of_half_precision_become_stores_of_single_precision(form, tmp_path):
    given = X.asformat(form)
    path = write_npz(tmp_path / "X.npz", given, form, data=given.data.astype(np.float16))
    back = decoded(path, tmp_path)
    assert back.dtype == np.float32
    assert np.array_equal(back.toarray(), X.toarray().astype(np.float16))


def test_pieces_make_the_same_store_as_all_at_once(tmp_path, monkeypatch):
    import cec_mpi.encoding.sources.market as market_reading
    import cec_mpi.encoding.sparse as reading

    twice = sp.csr_array(sp.vstack([X, sp.csr_array((3, 17)), X]))
    encode(twice, tmp_path / "expected", 3, copies=2)
    monkeypatch.setattr(reading, "_PIECE_ENTRIES", 2)
    monkeypatch.setattr(market_reading, "_BLOCK_BYTES", 7)
    for k, make in enumerate(SOURCES.values()):
        encode(make(tmp_path, twice), tmp_path / f"S{k}", 3, copies=2)
        assert content(tmp_path / f"S{k}") == content(tmp_path / "expected")


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    import cec_mpi.encoding.sparse as reading

    path = saved(tmp_path / "X.npz", X)
    read = reading.read_sparse

    def changed(path):
        rows = read(path)
        saved(path, X * 2 + sp.csr_array(np.eye(60, 17)))
        return rows

    monkeypatch.setattr(reading, "read_sparse", changed)
    with pytest.raises(InputError):
        encode(path, tmp_path / "S", 3, copies=2)
    assert [file.name for file in tmp_path.iterdir()] == ["X.npz"]


# --- bad input ----------------------------------------------------------------------------


def at(array, place, value):
    changed = np.array(array)
    changed[place] = value
    return changed


def text(directory, *lines, first=MARKET):
    (directory / "X.mtx").write_text("\n".join([first, *lines, ""]))
    return str(directory / "X.mtx")


def half(path):
    file = path.partition("::")[0]
    os.truncate(file, Path(file).stat().st_size // 2)
    return path


def held(X, **changed):
    found = X.copy()
    for name, value in changed.items():
        setattr(found, name, value)
    return found


def npz(given=X, form="csr", **changed):
    return lambda d: write_npz(d / "X.npz", given, form, **changed)


def h5(given=X, kind="csr_matrix", **changed):
    return lambda d: write_group(d / "X.h5", given, kind, **changed)


def mtx(*lines, head="real general"):
    return lambda d: text(d, *lines, first=f"%%MatrixMarket matrix coordinate {head}")


def in_memory(matrix):
    return lambda d: matrix


def slices(give, whole=X):
    return in_memory(Sliced(whole, give))


def twice(value, dtype, shape=(4, 4)):
    return sp.coo_array((np.full(2, value, dtype), ([1, 1], [2, 2])), shape=shape)


NAN, INF = at(X.data, 3, np.nan), at(X.data, 3, -np.inf)
ROW, COLUMN = (int(each[3]) for each in X.tocoo().coords)
HIGH, LOW = at(X.indices, 4, 17), at(X.indices, 4, -1)
C, COO = X.tocsc(), X.tocoo()
COMPLEX = "complex numbers (complex128), which are not supported"
BAD = {
    "NaN": (in_memory(held(X, data=NAN)), f"holds nan at row {ROW}, column {COLUMN} "),
    "NaN npz": (npz(data=NAN), f"nan at row {ROW}, column"),
    "infinity h5": (h5(data=INF), f"-inf at row {ROW}, col"),
    "NaN mtx": (mtx("2 2 1", "2 1 nan"), "line 3 is '2 1 nan', expected a row"),
    "a sum that overflows": (in_memory(twice(1e308, float)), "holds inf at row 1, column 2"),
    "high": (in_memory(held(X, indices=HIGH)), "csr_array is not a valid sparse matrix: ind"),
    "high csc": (in_memory(held(C, indices=at(C.indices, 4, 10**6))), "indices must be < 60"),
    "negative": (in_memory(held(X, indices=LOW)), "indices must be >= 0"),
    "high coo": (
        in_memory(held(COO, coords=(at(COO.row, 0, 10**6), COO.col))),
        "axis 0 index 1000000 exceeds matrix dimension 60",
    ),
    "high npz": (npz(indices=HIGH), "indices must be < 17"),
    "huge npz": (npz(indices=at(X.indices.astype(np.int64), 4, 2**40)), "indices must be < 17"),
    "high csc h5": (
        h5(C, "csc_matrix", indices=at(C.indices, 4, 60)),
        "X.h5::/X is not a valid sparse matrix: indices must be < 60",
    ),
    "row of coo": (npz(COO, "coo", row=at(COO.row, 0, -1)), "negative axis 0 index: -1"),
    "row 0 mtx": (mtx("2 2 1", "0 1 3"), "'0 1 3', expected a row from 1 to 2"),
    "column 3 mtx": (mtx("2 2 1", "1 3 3"), "expected a column from 1 to 2"),
    "few mtx": (mtx("2 2 3", "1 1 3"), "has 1 entry, expected 3 by its header"),
    "many mtx": (mtx("2 2 1", "1 1 3", "2 2 1"), "has more entries, expected 1"),
    "words mtx": (mtx("2 2 1", "1 one 3"), "line 3 is '1 one 3', expected a row"),
    "fraction mtx": (mtx("2 2 1", "1.5 1 3"), "line 3 is '1.5 1 3', expected a row"),
    "four numbers mtx": (mtx("2 2 2", "1 1 3", "1 2 3 4"), "line 4 is '1 2 3 4'"),
    "huge mtx": (mtx("2 2 1", f"{10**30} 1 3"), "expected a row from 1 to 2"),
    "half an mtx": (lambda d: half(market(d / "X.mtx", X)), "X.mtx"),
    "an mtx of 2^60 rows": (mtx(f"{2**60} 2 1", "1 1 3"), "do not fit in memory"),
    "complex": (in_memory(X * 1j), COMPLEX),
    "complex h5": (h5(data=X.data * 1j), COMPLEX),
    "complex mtx": (
        mtx("2 2 1", "1 1 3 1", head="complex general"),
        "holds complex numbers, which are not supported",
    ),
    "text npz": (npz(data=X.data.astype(str)), "real numbers"),
    "pointers that descend": (npz(indptr=at(X.indptr, 5, 10**6)), "expected ascending numbers"),
    "pointers beyond the end": (h5(indptr=at(X.indptr, -1, 10**6)), "expected ascending numbers"),
    "few pointers": (npz(indptr=X.indptr[:-2]), "size 59 should be 61"),
    "no pointers": (npz(indptr=None), "X.npz cannot be read"),
    "pointers of floats": (
        npz(indptr=X.indptr * 1.0),
        "has indices of float64: expected whole numbers",
    ),
    "few indices": (h5(indices=X.indices[:-3]), "expected an index for each value"),
    "many columns of coo": (
        npz(COO, "coo", col=np.append(X.indices, 1)),
        "all index and data arrays must have the same length",
    ),
    "no indices h5": (
        h5(indices=None),
        "is not a sparse matrix (a group with data, indices and indptr)",
    ),
    "no shape h5": (h5(shape=None), "has no attribute shape"),
    "one length": (npz(shape=np.array([60])), "expected (rows, columns)"),
    "another kind h5": (h5(X, "array"), "holds array: expected csr"),
    "columns beyond memory": (npz(shape=np.array([60, 2**60])), "do not fit in memory"),
    "another format": (npz(format=np.array(b"xyz")), "has format 'xyz': expected one of csr"),
    "a fill value npz": (npz(fill_value=np.array(7.0)), "has the fill value 7.0, expected 0"),
    "both triangles mtx": (
        mtx("2 2 2", "2 1 5", "1 2 5", head="real symmetric"),
        "is symmetric and has entries at 2, 1 and at 1, 2",
    ),
    "a diagonal of a skew mtx": (
        mtx("2 2 1", "2 2 5", head="real skew-symmetric"),
        "is skew-symmetric and has 5.0 at 2, 2: expected 0",
    ),
    "wide skew mtx": (
        mtx("2 3 1", "2 1 5", head="real skew-symmetric"),
        "line 2 is '2 3 1', expected a square matrix",
    ),
    "NUL mtx": (mtx("2 2 1", "1 1 3\0" + "99"), "line 3 is '1 1 3\\x0099', exp"),
    "digits after a NUL of a size mtx": (mtx("2\0 2 1", "1 1 3"), "line 2 is '2\\x00"),
    **{
        f"{field} {number} mtx": (
            mtx("2 2 1", f"1 1 {number}", head=f"{field} general"),
            f"line 3 is '1 1 {number}', expected a row, a column and ",
        )
        for field, number in (
            *(("real", each) for each in ("1,5", "0x1A", "1_000", "5x", "1e", "1.5+02", "1e400")),
            *(("integer", each) for each in ("1e3", "3.5", "3.0", str(2**64), str(-(2**63) - 1))),
            ("unsigned-integer", "-3"),
        )
    },
    "a dense npz": (
        lambda d: np.savez(d / "X.npz", a=X.toarray()) or str(d / "X.npz"),
        "expected a file of scipy.sparse.save_npz",
    ),
    "half an npz": (lambda d: half(saved(d / "X.npz", X)), "X.npz cannot be read"),
    "half an h5": (lambda d: half(write_group(d / "X.h5", X)), "cannot be read"),
    "no file": (lambda d: str(d / "X.npz"), "X.npz does not exist"),
    "no rows": (in_memory(sp.csr_array((0, 5))), "has shape (0, 5): expected at least one"),
    "no entry": (in_memory(sp.csr_array((5, 5))), "has no nonzero entry"),
    "no value mtx": (
        mtx("3 3 2", "", "1 1 0.5", "% a comment", "2 3"),
        "X.mtx: line 6 is '2 3', expected a row, a column and a finite number",
    ),
    "another group": (
        lambda d: write_group(d / "X.h5ad", X).replace("::/X", "::/raw"),
        "X.h5ad::/raw is not a sparse matrix (a group with data, indices and indptr); expected "
        "one of ",
    ),
    "one dimension": (in_memory(sp.coo_array(np.array([0, 1.0]))), "has shape (2,): expected"),
    "dense": (in_memory(X.toarray()), "a dense X needs a recovery threshold (recovery=L)"),
    "dense npy": (
        lambda d: np.save(d / "X.npy", X.toarray()) or str(d / "X.npy"),
        "X.npy is not a sparse matrix",
    ),
    "slices that raise": (slices(lambda rows: 1 / 0), "ZeroDivisionError"),
    "dense slices": (slices(X.toarray().__getitem__), "returned rows as ndarray"),
    "few rows": (
        slices(lambda rows: X[:3]),
        "returned rows of shape (3, 17) from row 0 on: expected (60, 17)",
    ),
    "wide slices": (
        slices(lambda rows: sparse(60, 18)),
        "(60, 18) from row 0 on: expected (60, 17)",
    ),
    "other slices": (
        slices(lambda rows: X[rows].astype(np.float32)),
        "returned float32: expected its dtype, float64",
    ),
    "moved slices": (
        slices(lambda rows: TALL[max(0, rows.start - 1) : rows.stop - 1], TALL),
        "returned rows of shape (",
    ),
    "a sum beyond int8": (
        in_memory(twice(100, np.int8)),
        "has repeated entries whose sum overflows int8",
    ),
    "a sum beyond uint8 npz": (
        npz(twice(200, np.uint8), "coo"),
        "has repeated entries whose sum overflows uint8",
    ),
    "values of a pattern mtx": (
        mtx("2 2 2", "1 1 3", "2 2 3", head="pattern general"),
        "line 3 is '1 1 3', expected a row and a column",
    ),
    "an mtx of all numbers": (
        lambda d: text(d, "1 2", "1", "0", first=MARKET.replace("coordinate", "array")),
        "X.mtx is dense; a dense X needs a recovery threshold",
    ),
    **{
        f"a FIFO {name}": (
            lambda d, name=name: os.mkfifo(d / f"X.{name}") or str(d / f"X.{name}"),
            f"X.{name} is a FIFO, expected a file",
        )
        for name in ("npz", "mtx", "mtx.gz", "h5")
    },
    "beyond float64": (
        npz(data=np.full(X.nnz, np.longdouble("1e400"))),
        "has numbers that float64 cannot hold",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_has_one_message_and_leaves_nothing(name, tmp_path):
    make, message = BAD[name]
    source = make(tmp_path)
    (tmp_path / "here").mkdir()
    with pytest.raises(InputError) as caught:
        encode(source, tmp_path / "here" / "S", 4, copies=2)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "here").iterdir())


OF_CODES = [name for name in BAD if name.endswith((" npz", " mtx", " csc", " coo"))] + [
    "a sum beyond int8",
    "high",
    "negative",
    "pointers that descend",
    "pointers of floats",
]


@pytest.mark.parametrize("name", sorted(set(OF_CODES) - {"a dense npz", "NaN npz"}))
def test_bad_input_has_the_same_message_if_shards_are_dense(name, tmp_path):
    make, message = BAD[name]
    source = make(tmp_path)
    (tmp_path / "here").mkdir()
    with pytest.raises(InputError) as caught:
        encode(source, tmp_path / "here" / "S", 4, 2)
    assert message in str(caught.value)
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.filterwarnings("ignore:.*is sparse")
def test_missing_values_of_dense_shards_are_those_of_other_matrices(tmp_path):
    given = np.arange(12.0).reshape(4, 3)
    given[2, 1] = np.nan
    path = saved(tmp_path / "X.npz", sp.csc_array(given))
    with pytest.raises(InputError, match=r"row 2, column 1.*missing="):
        encode(path, tmp_path / "S", 3, 2)
    encode(path, tmp_path / "S", 3, 2, missing="drop-rows")
    decode(tmp_path / "S", tmp_path / "back.npy")
    assert np.allclose(np.load(tmp_path / "back.npy"), given[[0, 1, 3]], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"copies": 5}, "copies 5: expected from 1 to 4"),
        ({"copies": 0}, "copies 0: expected from 1 to 4"),
        ({"copies": 1.5}, "copies 1.5: expected a whole number"),
        ({"copies": 2, "recovery": 2}, "copies and recovery: expected only one of them"),
        ({"recovery": 2, "speeds": [1, 1, 1, 1]}, "speeds and recovery: expected only one of them"),
        ({"copies": 2, "systematic": True}, "systematic is only for a code"),
        ({"copies": 2, "scaling": "rows"}, "scaling is only for a code"),
        ({"copies": 2, "resume": True}, "resume is only for a code"),
        ({"copies": 2, "memory": 1 << 30}, "memory is only for a code"),
        ({"copies": 2, "shape": (3, 3)}, "shape is only for a code"),
        ({"copies": 2, "speeds": [1, 2]}, "2 speeds for 4 machines"),
        ({"copies": 2, "speeds": []}, "speeds have shape"),
        ({"copies": 2, "speeds": [1, 2, 0, 1]}, "the speed at position 3 is 0"),
        ({"copies": 2, "speeds": ["a", 1, 1, 1]}, "the speed at position 1 is 'a'"),
        ({"copies": 2, "spread": 0}, "in 0 orders"),
    ],
)
def test_options_that_cannot_be(options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        encode(X, tmp_path / "S", 4, **options)
    assert not list(tmp_path.iterdir())


def test_numbers_that_single_precision_cannot_hold(tmp_path):
    with pytest.raises(InputError, match="use dtype='float64'"):
        encode(X * 1e300, tmp_path / "S", 3, copies=2, dtype="float32")
    assert not list(tmp_path.iterdir())


def test_an_existing_store_stays(tmp_path):
    encode(X, tmp_path / "S", 3, copies=2)
    before = content(tmp_path / "S")
    with pytest.raises(InputError, match="S exists already: choose another name"):
        encode(X * 2, tmp_path / "S", 3, copies=2)
    assert content(tmp_path / "S") == before


KILLED = """
import os, signal, sys
from cec_mpi import encode
from helpers.sparse import Sliced, sparse
X = sparse(60, 17)
def give(rows):
    os.kill(os.getpid(), signal.SIGKILL)
def last_part(number, frame):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "reading":
    encode(Sliced(X, give), "S", 4, copies=2)
import cec_mpi.encoding.replicas as replicas
replicas.publish_manifest = last_part
encode(X, "S", 4, copies=2)
"""


@pytest.mark.parametrize("moment", ["reading", "writing"])
def test_killed_it_leaves_partial_names_that_the_next_one_removes(moment, tmp_path):
    from helpers import ROOT

    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, moment],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    left = [path.name for path in tmp_path.iterdir()]
    assert left
    assert all(name.startswith(".S.partial.") for name in left)
    encode(X, tmp_path / "S", 4, copies=2)
    assert [path.name for path in tmp_path.iterdir()] == ["S"]
    assert open_store(tmp_path / "S").manifest.rows == 60


# --- attributes, and MATLAB ---------------------------------------------------------------


def test_attributes_of_a_sparse_matrix_in_hdf5_are_minded(tmp_path):
    source = write_group(tmp_path / "X.h5ad", X)
    for place in ("X", "X/data"):
        with h5py.File(tmp_path / "X.h5ad", "a") as file:
            file[place].attrs["scale_factor"] = 0.5
        with pytest.raises(InputError, match=r"X/data has attributes .*scale_factor \(0\.5\)"):
            encode(source, tmp_path / "S", 3, copies=2)
        for options, expected in ({"raw_values": True}, X), ({"decode_cf": True}, X * 0.5):
            directory = tmp_path / f"{place.replace('/', '-')}-{next(iter(options))}"
            directory.mkdir()
            assert np.array_equal(
                decoded(source, directory, **options).toarray(), expected.toarray()
            )
        with h5py.File(tmp_path / "X.h5ad", "a") as file:
            del file[place].attrs["scale_factor"]
            file[place].attrs["add_offset"] = 1.0
        with pytest.raises(InputError, match=r"add_offset, which would change entries"):
            encode(source, tmp_path / "S", 3, copies=2, decode_cf=True)
        with h5py.File(tmp_path / "X.h5ad", "a") as file:
            del file[place].attrs["add_offset"]


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


def test_a_sparse_matrix_of_matlab_has_the_shape_that_matlab_shows(tmp_path):
    back = decoded(matlab(tmp_path / "X.mat", X), tmp_path)
    assert np.array_equal(back.toarray(), X.toarray())
    with pytest.raises(InputError, match=r"is a sparse matrix.*expected no recovery="):
        encode(f"{tmp_path}/X.mat::/X", tmp_path / "code", 3, 2)


def test_a_sparse_matrix_of_matlab_without_entries_is_refused(tmp_path):
    path = matlab(tmp_path / "X.mat", sp.csr_array((3, 4)))
    with pytest.raises(InputError, match="::/X has no nonzero entry"):
        encode(path, tmp_path / "S", 3, copies=2)
