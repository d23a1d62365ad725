"""Decode writes X in every format that encode reads."""

import subprocess
import sys
import warnings
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import zarr

from cec_mpi import encode
from cec_mpi.encoding.sources import open_source
from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.store import decode
from cec_mpi.store.work import LocalRunner
from helpers.matrices import read_matrix
from helpers.waiting import LIMIT

X = np.random.default_rng(0).standard_normal((401, 7)) * 10.0 ** np.arange(-3, 4)


in_both_dtypes = pytest.mark.parametrize("store", ["float64", "float32"], indirect=True)


@pytest.fixture
def store(request, tmp_path):
    """A store of float64, or of the dtypes of `in_both_dtypes`."""
    np.save(tmp_path / "X.npy", X)
    dtype = getattr(request, "param", "float64")
    encode(tmp_path / "X.npy", tmp_path / "store", 4, 3, dtype=dtype)
    return tmp_path / "store"


def load_matrix(path):
    return read_matrix(path)[1]


NAMES = ["a.csv", "a.tsv", "a.CSV", "a.h5", "a.hdf5::/group/deep", "a.zarr", "a.zarr::/group/deep"]


@in_both_dtypes
@pytest.mark.parametrize("name", NAMES)
def test_every_format_has_the_same_entries(store, tmp_path, name):
    bound = decode(store, tmp_path / "out.npy")
    assert decode(store, f"{tmp_path}/{name}") == bound
    expected = np.load(tmp_path / "out.npy")
    assert np.array_equal(load_matrix(f"{tmp_path}/{name}").astype(expected.dtype), expected)
    if "csv" not in name.lower() and "tsv" not in name:
        assert open_source(f"{tmp_path}/{name}").dtype == expected.dtype
    assert not list(tmp_path.glob(".*"))


@in_both_dtypes
def test_other_libraries_read_the_same_entries(store, tmp_path):
    for name in ("a.h5", "a.zarr::/m", "a.csv", "a.npy"):
        decode(store, f"{tmp_path}/{name}")
    expected = np.load(tmp_path / "a.npy")
    with h5py.File(tmp_path / "a.h5") as file:
        assert np.array_equal(file["X"][:], expected)
    assert np.array_equal(zarr.open(tmp_path / "a.zarr", mode="r")["m"][:], expected)
    table = np.loadtxt(tmp_path / "a.csv", delimiter=",", dtype=expected.dtype)
    assert np.array_equal(table, expected)


def test_text_has_no_more_digits_than_it_needs(tmp_path):
    np.save(tmp_path / "X.npy", np.array([[0.1, 1e-7], [3.0, -2.5]], np.float32))
    encode(tmp_path / "X.npy", tmp_path / "store", 2, 1, systematic=True)
    decode(tmp_path / "store", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "0.1,1e-07\n3.0,-2.5\n"


FORMAT, DATASET = r"cannot write this format, expected \.npy,", "expected the name of a dataset"
DELIMITER = "delimiter is only for text tables"


@pytest.mark.parametrize(
    ("name", "delimiter", "message"),
    [
        *((name, None, FORMAT) for name in ("a", "a.txt", "a.npy.gz", "a.csv::/x", "a.npy::/x")),
        *((name, None, DATASET) for name in ("a.h5::", "a.h5::/")),
        *((name, "tab", DELIMITER) for name in ("a.npy", "a.h5")),
        ("a.csv", "7", "delimiter '7': expected one ASCII character"),
        ("nowhere/a.csv", None, "cannot be created: .*nowhere does not exist"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused(store, tmp_path, name, delimiter, message):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=message):
        decode(store, f"{tmp_path}/{name}", delimiter=delimiter)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", NAMES[::3])
def test_a_decode_that_fails_changes_no_file(store, tmp_path, name, monkeypatch):
    path, before = tmp_path / name.partition("::")[0], sorted(tmp_path.iterdir())
    path.write_text("precious")
    with pytest.raises(InputError, match=r"a\.\w+ exists already: choose another name"):
        decode(store, f"{tmp_path}/{name}")
    assert path.read_text() == "precious"
    path.unlink()
    path.symlink_to("elsewhere")
    with pytest.raises(InputError, match="exists"):
        decode(store, f"{tmp_path}/{name}")
    path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
        with pytest.raises(InputError, match=r"a\.\w+ needs \d+ bytes, but .* has only 1000 bytes"):
            decode(store, f"{tmp_path}/{name}")
    for shard in (1, 3):
        (store / f"shard-000{shard}.npy").unlink()
    with pytest.raises(DamagedStoreError, match="cannot be decoded"):
        decode(store, f"{tmp_path}/{name}")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["a.npy", "a.zarr"])
def test_the_next_decode_removes_the_files_of_a_killed_one(store, tmp_path, name):
    program = (
        "import os, sys; from cec_mpi import decode; from cec_mpi.store.work import LocalRunner\n"
        "decode(*sys.argv[1:], runner=LocalRunner(on_progress=lambda *_: os.kill(os.getpid(), 9)))"
    )
    before = sorted(tmp_path.iterdir())
    words = [sys.executable, "-c", program, store, tmp_path / name]
    subprocess.run(words, timeout=LIMIT, check=False)
    assert len(list(tmp_path.iterdir())) == len(before) + 1
    decode(store, tmp_path / name)
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / name])


@pytest.mark.parametrize("name", ["a.npy", "a.zarr"])
def test_the_second_of_two_concurrent_decodes_fails(store, tmp_path, name):
    second_decode = [lambda: decode(store, tmp_path / name)]
    runner = LocalRunner(on_progress=lambda *_: second_decode and second_decode.pop()())
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="exists already"):
        decode(store, tmp_path / name, runner=runner)
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / name])
    assert np.allclose(load_matrix(tmp_path / name), X, rtol=1e-3)


def test_a_missing_library_names_its_extra(store, tmp_path, monkeypatch):
    for module, name in (("h5py", "a.h5"), ("zarr", "a.zarr")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(
            InputError, match=f"{name} cannot be written without {module}: pip install"
        ):
            decode(store, tmp_path / name)


def test_wide_rows_are_cut_into_chunks(tmp_path):
    wide = np.random.default_rng(1).standard_normal((3, 600_000))
    np.save(tmp_path / "X.npy", wide)
    encode(tmp_path / "X.npy", tmp_path / "store", 2, 1, systematic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decode(tmp_path / "store", tmp_path / "a.zarr")
    array = zarr.open(tmp_path / "a.zarr", mode="r")
    assert array.chunks == (1, 524_288)
    assert np.array_equal(array[:], np.load(tmp_path / "X.npy"))
