"""Matrices in the formats that people have them in, whole and in rectangles."""

import os
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
import zarr

from cec_mpi import encode
from cec_mpi.encoding.sources import Source, open_source
from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.packing import pack_fields, unpack_fields
from cec_mpi.store import decode
from cec_mpi.store.work import LocalRunner
from helpers.matrices import matrix_in

X = np.random.default_rng(0).standard_normal((203, 7))


def parts(directory):
    path = directory / "parts"
    path.mkdir()
    cuts = (0, 1, 100, 150, 203)
    for k, (start, stop) in enumerate(pairwise(cuts)):
        order = "F" if k == 2 else "C"
        np.save(path / f"part-{k + 8}.npy", np.asarray(X[start:stop], order=order))  # 8 9 10 11
    return path


def hdf5(directory, name="group/matrix", **options):
    path = directory / "X.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(name, data=X, **options)
        file.create_dataset("vector", data=X[0])
    return path


def zarr_array(directory):
    path = directory / "X.zarr"
    array = zarr.create_array(path, shape=X.shape, chunks=(50, 4), dtype=X.dtype)
    array[:] = X
    return path


def zarr_group(directory):
    path = directory / "group.zarr"
    group = zarr.open_group(path, mode="w")
    group.create_array("a", shape=X.shape, dtype=X.dtype)[:] = X
    group.create_array("line", shape=(3,), dtype=X.dtype)
    return path


def table(directory, suffix=".csv", delimiter=",", header="", end="\n"):
    path = directory / f"X{suffix}"
    lines = [delimiter.join(map(repr, row)) for row in X.tolist()]
    path.write_bytes(end.join([*([header] if header else []), *lines, ""]).encode())
    return path


def market(directory):
    scipy.io.mmwrite(directory / "X.mtx", X, precision=17)
    return directory / "X.mtx"


def raw(directory):
    X.tofile(directory / "X.bin")
    return directory / "X.bin"


def npy(directory):
    np.save(directory / "X.npy", X)
    return directory / "X.npy"


def fortran(directory):
    np.save(directory / "F.npy", np.asfortranarray(X))
    return directory / "F.npy"


def misnamed(directory):
    npy(directory).rename(directory / "matrix.data")
    return directory / "matrix.data"


def parts_in_capitals(directory):
    for path in parts(directory).iterdir():
        path.rename(path.with_suffix(".NPY"))
    return directory / "parts"


WRITERS = {
    "npy": npy,
    "npy, Fortran": fortran,
    "npy of another name": misnamed,
    "parts": parts,
    "parts in capitals": parts_in_capitals,
    "hdf5": lambda directory: f"{hdf5(directory)}::/group/matrix",
    "hdf5, the only matrix": hdf5,
    "hdf5, compressed": lambda directory: hdf5(directory, chunks=(64, 3), compression="gzip"),
    "zarr": zarr_array,
    "zarr group": lambda directory: f"{zarr_group(directory)}::/a",
    "zarr, the only matrix": zarr_group,
    "csv": table,
    "csv with CR LF": lambda directory: table(directory, end="\r\n"),
    "tsv": lambda directory: table(directory, ".tsv", "\t"),
    "matrix market": market,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_every_format_gives_the_same_store(tmp_path, write):
    encode(npy(tmp_path), tmp_path / "expected", 5, 3)
    encode(write(tmp_path), tmp_path / "store", 5, 3)
    for name in ("manifest.json", "shard-0001.npy", "shard-0005.npy"):
        assert (tmp_path / "store" / name).read_bytes() == (
            tmp_path / "expected" / name
        ).read_bytes()


def test_raw_binary_needs_a_shape_and_a_dtype(tmp_path):
    encode(raw(tmp_path), tmp_path / "store", 5, 3, shape=(203, 7), dtype="float64")
    decode(tmp_path / "store", tmp_path / "out.npy")
    assert np.allclose(np.load(tmp_path / "out.npy"), X, rtol=0, atol=1e-14)
    encode(
        raw(tmp_path), tmp_path / "half", 5, 3, shape=(203, 7), input_dtype="<f8", dtype="float32"
    )
    decode(tmp_path / "half", tmp_path / "half.npy")
    assert np.load(tmp_path / "half.npy").dtype == np.float32
    (X * 100).astype(">i2").tofile(tmp_path / "X.bin")
    _, out = matrix_in(tmp_path / "X.bin", shape=(203, 7), input_dtype=">i2")
    assert np.array_equal(out, (X * 100).astype(">i2"))


READ_ONCE = ("csv", "csv with CR LF", "tsv", "matrix market")


@dataclass
class Opened:
    """A source that crosses to another process."""

    source: Source


@pytest.mark.parametrize("name", [name for name in WRITERS if name not in READ_ONCE])
def test_any_rectangle_can_be_read_by_anyone(tmp_path, name):
    opened = Opened(open_source(WRITERS[name](tmp_path)))
    source = unpack_fields(pack_fields(opened), Opened).source
    assert source.shape == X.shape
    assert source.dtype.newbyteorder("=") == X.dtype
    for start, stop, left, right in (
        (0, 203, 0, 7),
        (0, 1, 0, 1),
        (63, 65, 2, 5),
        (99, 160, 0, 7),
        (202, 203, 6, 7),
    ):
        for dtype in (np.float64, np.float32):
            out = np.empty((stop - start, right - left), dtype)
            source.read(start, stop, left, right, out)
            assert np.array_equal(out, X[start:stop, left:right].astype(dtype))


# --- before encoding ----------------------------------------------------------------------


def test_a_sparse_matrix_is_taken_with_a_warning(tmp_path):
    sparse = scipy.sparse.random(90, 40, 0.05, random_state=0, format="coo")
    scipy.io.mmwrite(tmp_path / "S.mtx", sparse, precision=17)
    with pytest.warns(UserWarning, match=r"S\.mtx is sparse \(5\.00% of 90 x 40.*58112 bytes"):
        encode(tmp_path / "S.mtx", tmp_path / "store", 4, 2)
    decode(tmp_path / "store", tmp_path / "out.npy")
    assert np.allclose(np.load(tmp_path / "out.npy"), sparse.toarray(), rtol=0, atol=1e-14)


def test_a_wide_table(tmp_path):
    wide = np.arange(300_000.0).reshape(3, 100_000)
    (tmp_path / "t.csv").write_text("\n".join(",".join(map(repr, row)) for row in wide.tolist()))
    assert np.array_equal(matrix_in(tmp_path / "t.csv")[1], wide)


def test_a_changed_zarr_array_is_noticed(tmp_path):
    path = zarr_array(tmp_path)
    before = open_source(path).stamps
    assert open_source(path).stamps == before
    zarr.open_array(path, mode="r+")[3, 3] = 7
    assert open_source(path).stamps != before


# --- files that change --------------------------------------------------------------------


@pytest.fixture
def replaceable(tmp_path, monkeypatch):
    """Write X and 2 X under the same relative name, in here and other, of the same time."""
    here, other = tmp_path / "here", tmp_path / "other"

    def make(write):
        here.mkdir()
        other.mkdir()
        source = os.path.relpath(write(here), here)
        monkeypatch.setattr(sys.modules[__name__], "X", 2 * X)
        write(other)
        for path in tmp_path.rglob("*"):
            os.utime(path, ns=(0, 0))
        monkeypatch.chdir(here)
        return source

    return make


def replace_what_is_here():
    here = Path.cwd()
    other = here.with_name("other")
    for path in here.iterdir():
        path.rename(here.parent / path.name)
    for path in other.iterdir():
        path.rename(here / path.name)


def decoded(store):
    decode(store, f"{store}.npy")
    return np.load(f"{store}.npy")


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_the_file_of_now_is_encoded(replaceable, write, monkeypatch, tmp_path):
    once, source = X, replaceable(write)
    encode(source, tmp_path / "first", 3, 2)
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path / "other")
        encode(source, tmp_path / "elsewhere", 3, 2)
    replace_what_is_here()
    encode(source, tmp_path / "replaced", 3, 2)
    for name, expected in (("first", once), ("elsewhere", 2 * once), ("replaced", 2 * once)):
        assert np.allclose(decoded(tmp_path / name), expected, rtol=0, atol=1e-13), name


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_file_that_changes_while_it_is_encoded_is_refused(replaceable, write, tmp_path):
    class Changing(LocalRunner):
        def run(self, work):
            found = super().run(work)
            for path in Path.cwd().rglob("*"):
                os.utime(path, ns=(1, 1))
            return found

    source = replaceable(write)
    with pytest.raises(InputError, match="changed during the encode"):
        encode(source, tmp_path / "store", 3, 2, runner=Changing())
    assert not (tmp_path / "store").exists()


def test_an_encode_leaves_no_file_open(tmp_path):
    path = hdf5(tmp_path)
    encode(path, tmp_path / "store", 3, 2)
    with h5py.File(path, "r+") as file:
        file["group/matrix"][0] = 7
    encode(path, tmp_path / "again", 3, 2)
    assert np.allclose(decoded(tmp_path / "again")[0], 7)


# --- what is refused ----------------------------------------------------------------------


def write(name, content):
    def make(directory):
        path = directory / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def in_hdf5(**datasets):
    def make(directory):
        with h5py.File(directory / "X.h5", "w") as file:
            for name, data in datasets.items():
                file[name] = data
        return directory / "X.h5"

    return make


def two_arrays(directory):
    with (directory / "X.npy").open("wb") as file:
        np.save(file, X)
        np.save(file, X)
    return directory / "X.npy"


def uneven_parts(directory):
    path = parts(directory)
    np.save(path / "part-99.npy", np.ones((3, 8)))
    return path


def empty_directory(directory):
    (directory / "parts").mkdir()
    return directory / "parts"


def a_store(directory):
    encode(npy(directory), directory / "a store", 3, 2)
    return directory / "a store"


BAD = {
    "no matrices": (in_hdf5(v=X[0]), r"X\.h5 has 0 matrices \(none\): choose one"),
    "two matrices": (
        in_hdf5(a=X, b=X),
        r"X\.h5 has 2 matrices \(/a, /b\): choose one with .*::/NAME",
    ),
    "no such dataset": (
        lambda directory: f"{in_hdf5(a=X)(directory)}::/b",
        r"X\.h5 has no dataset /b, expected one of /a",
    ),
    "a group": (lambda directory: f"{hdf5(directory)}::/group", r"::/group is a group"),
    "one colon": (
        lambda directory: f"{hdf5(directory)}:/vector",
        r"h5:/vector does not exist: expected .*h5::/vector$",
    ),
    "a vector": (
        lambda directory: f"{hdf5(directory)}::/vector",
        r"shape \(7,\), expected \(rows, c",
    ),
    "complex hdf5": (in_hdf5(a=X + 1j), r"complex numbers \(complex128\), which are not supported"),
    "text in hdf5": (in_hdf5(a=[[b"x"]]), r"expected real numbers"),
    "no hdf5": (write("X.h5", "hello"), r"X\.h5 cannot be read: "),
    "no zarr array": (lambda directory: f"{zarr_group(directory)}::/b", r"has no array /b"),
    "a damaged zarr": (
        lambda directory: write("zarr.json", "{")(empty_directory(directory)).parent,
        r"parts cannot be read: ",
    ),
    "an empty directory": (empty_directory, r"parts contains neither \.npy files nor a Zarr array"),
    "two arrays": (
        two_arrays,
        r"X\.npy has 11496 bytes after its first array, of shape \(203, 7\)",
    ),
    "uneven parts": (uneven_parts, r"part-99\.npy has shape \(3, 8\), expected .*\(1, 7\)"),
    "a store": (a_store, r"is a store, expected a matrix \(cec-mpi decode"),
    "longer lines from some place on": (
        write("a.csv", f"{1:0400},2\n" * 15_000 + "1,2,3\n" * 7_000),
        r"a\.csv: line 15001 has 3 columns, but line 1 has 2",
    ),
    "an empty table": (write("a.csv", ""), "has no rows of numbers"),
    "only a header": (write("a.csv", "a,b\n"), "has no rows of numbers"),
    "complex market": (
        write("c.mtx", "%%MatrixMarket matrix array complex general\n1 1\n1 2\n"),
        r"c\.mtx holds complex numbers, which are not supported",
    ),
    "no market": (write("c.mtx", "hello\n"), r"c\.mtx: line 1 is 'hello', expected %%"),
    "a cut market": (
        write("c.mtx", "%%MatrixMarket matrix array real general\n3 1\n1\n2\n"),
        r"c\.mtx has 2 entries, expected 3 by its header",
    ),
    "a table under the name of an array": (
        write("a.npy", "id,price\n1,300\n"),
        r"a\.npy is not a readable \.npy file: it does not begin with the .npy header$",
    ),
    "an unknown format": (write("c.dat", "1 2 3"), r"c\.dat has an unknown format"),
    "nothing": (lambda directory: directory / "none.h5", r"none\.h5 does not exist"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_what_is_no_matrix_is_refused_by_name(tmp_path, make, message):
    source = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=message) as refused:
        encode(source, tmp_path / "store", 4, 2)
    assert "\n" not in str(refused.value)
    assert sorted(tmp_path.iterdir()) == before


def test_a_matrix_cut_short_while_it_is_read_is_a_message(tmp_path):
    for make in (npy, fortran):
        source = open_source(make(tmp_path))
        with source.array.path.open("r+b") as file:
            file.truncate(5000)
        with pytest.raises(
            InputError, match=r"\.npy ends before its last .*: the file was truncated"
        ):
            source.read(0, 203, 0, 7, np.empty(X.shape))


def test_a_missing_library_names_its_extra(tmp_path, monkeypatch):
    path = hdf5(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(
        InputError, match=r"X\.h5 cannot be read without h5py: pip install 'cec_mpi\[hdf5\]'"
    ):
        open_source(path)
