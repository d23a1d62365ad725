"""Matrices in files of all formats, complete and by rectangles."""

import os
import sys
from dataclasses import dataclass
from itertools import pairwise

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
from helpers.matrices import read_matrix

X = np.random.default_rng(0).standard_normal((203, 7))


def npy(directory, name="X.npy", order="C"):
    with (directory / name).open("wb") as file:
        np.save(file, np.asarray(X, order=order))
    return directory / name


def parts(directory):
    (directory / "parts").mkdir()
    for k, (start, stop) in enumerate(pairwise((0, 1, 100, 150, 203))):
        with (directory / "parts" / f"part-{k + 8}.npy").open("wb") as file:  # 8 9 10 11
            np.save(file, np.asarray(X[start:stop], order="F" if k == 2 else "C"))
    return directory / "parts"


def hdf5(directory):
    with h5py.File(directory / "X.h5", "w") as file:
        file.create_dataset("group/matrix", data=X, chunks=(64, 3), compression="gzip")
        file.create_dataset("vector", data=X[0])
    return directory / "X.h5"


def zarr_array(directory):
    zarr.create_array(directory / "X.zarr", data=X, chunks=(50, 4))
    return directory / "X.zarr"


def zarr_group(directory):
    group = zarr.open_group(directory / "group.zarr", mode="w")
    group.create_array("a", data=X)
    group.create_array("line", shape=(3,), dtype=X.dtype)
    return directory / "group.zarr"


def table(directory, suffix=".csv", delimiter=",", end="\n"):
    lines = [delimiter.join(map(repr, row)) for row in X.tolist()]
    (directory / f"X{suffix}").write_bytes(end.join([*lines, ""]).encode())
    return directory / f"X{suffix}"


def market(directory):
    scipy.io.mmwrite(directory / "X.mtx", X, precision=17)
    return directory / "X.mtx"


WRITERS = {
    "npy": npy,
    "npy, Fortran": lambda directory: npy(directory, "F.npy", "F"),
    "npy of another name": lambda directory: npy(directory, "matrix.data"),
    "parts": parts,
    "hdf5": lambda directory: f"{hdf5(directory)}::/group/matrix",
    "hdf5, the only matrix": hdf5,
    "zarr": zarr_array,
    "zarr group": lambda directory: f"{zarr_group(directory)}::/a",
    "zarr, the only matrix": zarr_group,
    "csv": table,
    "csv with CR LF": lambda directory: table(directory, end="\r\n"),
    "tsv": lambda directory: table(directory, ".tsv", "\t"),
    "matrix market": market,
}
READ_ONCE = ("csv", "csv with CR LF", "tsv", "matrix market")


@dataclass
class Message:
    """A message that sends a source to another process."""

    source: Source


@pytest.mark.parametrize("name", [name for name in WRITERS if name not in READ_ONCE])
def test_any_process_can_read_any_rectangle(tmp_path, name):
    packed = pack_fields(Message(open_source(WRITERS[name](tmp_path))))
    source = unpack_fields(packed, Message).source
    assert source.shape == X.shape
    assert source.dtype.newbyteorder("=") == X.dtype
    for start, stop, left, right in ((0, 203, 0, 7), (63, 65, 2, 5), (99, 160, 0, 7)):
        for dtype in (np.float64, np.float32):
            out = np.empty((stop - start, right - left), dtype)
            source.read(start, stop, left, right, out)
            assert np.array_equal(out, X[start:stop, left:right].astype(dtype))


def decode_matrix(store):
    decode(store, f"{store}.npy")
    return np.load(f"{store}.npy")


def test_raw_binary_needs_a_shape_and_a_dtype(tmp_path):
    path = tmp_path / "X.bin"
    X.tofile(path)
    encode(path, tmp_path / "store", 5, 3, shape=(203, 7), dtype="float64")
    assert np.allclose(decode_matrix(tmp_path / "store"), X, rtol=0, atol=1e-14)
    encode(path, tmp_path / "half", 5, 3, shape=(203, 7), input_dtype="<f8", dtype="float32")
    assert decode_matrix(tmp_path / "half").dtype == np.float32
    (X * 100).astype(">i2").tofile(path)
    _, out = read_matrix(path, shape=(203, 7), input_dtype=">i2")
    assert np.array_equal(out, (X * 100).astype(">i2"))


def test_a_wide_table_is_read(tmp_path):
    wide = np.arange(300_000.0).reshape(3, 100_000)
    (tmp_path / "t.csv").write_text("\n".join(",".join(map(repr, row)) for row in wide.tolist()))
    assert np.array_equal(read_matrix(tmp_path / "t.csv")[1], wide)


def read_shards(store):
    return [path.read_bytes() for path in sorted(store.glob("shard-*"))]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_every_format_gives_the_store_of_an_array(tmp_path, write):
    encode(X, tmp_path / "expected", 3, 2)
    encode(write(tmp_path), tmp_path / "store", 3, 2)
    assert read_shards(tmp_path / "store") == read_shards(tmp_path / "expected")


# --- files that change --------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_file_that_changes_during_the_encode_is_refused(tmp_path, write):
    class ChangingRunner(LocalRunner):
        def run(self, work):
            results = super().run(work)
            for path in tmp_path.glob("source/**/*"):
                os.utime(path, ns=(1, 1))
            return results

    (tmp_path / "source").mkdir()
    source = write(tmp_path / "source")
    with pytest.raises(InputError, match="changed during the encode"):
        encode(source, tmp_path / "store", 3, 2, runner=ChangingRunner())
    assert not (tmp_path / "store").exists()


def test_an_encode_leaves_no_file_open(tmp_path):
    encode(hdf5(tmp_path), tmp_path / "store", 3, 2)
    with h5py.File(tmp_path / "X.h5", "r+") as file:
        file["group/matrix"][0] = 7


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_is_truncated_while_it_is_read_is_named(tmp_path, order):
    source = open_source(npy(tmp_path, order=order))
    os.truncate(tmp_path / "X.npy", 5000)
    with pytest.raises(InputError, match=r"\.npy ends before its last .*: the file was truncated"):
        source.read(0, 203, 0, 7, np.empty(X.shape))


# --- bad input ----------------------------------------------------------------------------


def file_with(name, content):
    def make(directory):
        path = directory / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def hdf5_with(name="", **datasets):
    def make(directory):
        with h5py.File(directory / "X.h5", "w") as file:
            for dataset, data in datasets.items():
                file[dataset] = data
        return f"{directory}/X.h5{name}"

    return make


def uneven_parts(directory):
    np.save(parts(directory) / "part-99.npy", np.ones((3, 8)))
    return directory / "parts"


def directory_with(**files):
    def make(directory):
        (directory / "parts").mkdir()
        for name, content in files.items():
            (directory / "parts" / f"{name}.json").write_text(content)
        return directory / "parts"

    return make


def archive(directory):
    np.savez(directory / "X.npz", a=X)
    return directory / "X.npz"


MARKET = "%%MatrixMarket matrix array"
BAD = {
    "no matrices": (hdf5_with(v=X[0]), r"X\.h5 has no matrix$"),
    "two matrices": (hdf5_with(a=X, b=X), r"has 2 matrices \(/a, /b\): choose one with .*::/NAME"),
    "no such dataset": (hdf5_with("::/b", a=X), r"X\.h5 has no dataset /b, expected one of /a"),
    "a group": (lambda d: f"{hdf5(d)}::/group", r"::/group is a group"),
    "one colon": (lambda d: f"{hdf5(d)}:/vector", r"does not exist: expected .*h5::/vector$"),
    "a vector": (lambda d: f"{hdf5(d)}::/vector", r"shape \(7,\), expected \(rows, c"),
    "no hdf5": (file_with("X.h5", "hello"), r"X\.h5 cannot be read: "),
    "no zarr array": (lambda d: f"{zarr_group(d)}::/b", r"has no array /b"),
    "a damaged zarr": (directory_with(zarr="{"), r"parts cannot be read: "),
    "an empty directory": (directory_with(), r"contains neither \.npy files nor a Zarr array"),
    "a store": (directory_with(manifest="{}"), r"is a store, expected a matrix \(cec-mpi decode"),
    "uneven parts": (uneven_parts, r"part-99\.npy has shape \(3, 8\), expected .*\(1, 7\)"),
    "two arrays": (
        lambda d: file_with("Y.npy", 2 * npy(d).read_bytes())(d),
        r"Y\.npy has 11496 bytes after its first array, of shape \(203, 7\)",
    ),
    "an archive": (archive, r"X\.npz is an archive of arrays.*expected one array \(\.npy\)"),
    "longer lines after 6 MB": (
        file_with("a.csv", f"{1:0400},2\n" * 15_000 + "1,2,3\n" * 7_000),
        r"a\.csv: line 15001 has 3 columns, but line 1 has 2",
    ),
    "only a header": (file_with("a.csv", "a,b\n"), "has no rows of numbers"),
    "no market": (file_with("c.mtx", "hello\n"), r"c\.mtx: line 1 is 'hello', expected %%"),
    "a truncated market": (
        file_with("c.mtx", f"{MARKET} real general\n3 1\n1\n2\n"),
        r"c\.mtx has 2 entries, but its header requires 3",
    ),
    "an unknown format": (file_with("c.dat", "1 2 3"), r"c\.dat has an unknown format"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_bad_files_are_named_and_leave_no_files(tmp_path, make, message):
    source = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=message) as error:
        encode(source, tmp_path / "store", 4, 2)
    assert "\n" not in str(error.value)
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_library_names_its_extra(tmp_path, monkeypatch):
    path = hdf5(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    message = r"X\.h5 cannot be read without h5py: pip install 'cec_mpi\[hdf5\]'"
    with pytest.raises(InputError, match=message):
        open_source(path)
