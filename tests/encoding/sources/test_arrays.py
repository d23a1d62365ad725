"""X in the memory of a program: arrays, frames and sparse matrices of other libraries."""

import re

import dask
import dask.array
import h5py
import numpy as np
import pandas
import pytest
import scipy.sparse
import xarray
import zarr

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.store import decode, open_store
from cec_mpi.store.work import LocalRunner
from helpers.dying import DyingRunner, run_until_death
from helpers.stores import SmallPiecesRunner, encode_blocks

X = np.random.default_rng(0).standard_normal((203, 7))
NAMES = tuple("abcdefg")


class RowArray:
    """An array with the smallest interface: a shape, a dtype, and slices of rows."""

    def __init__(self, values, shape=None, dtype=None):
        self.values = values
        self.shape = shape or values.shape
        self.dtype = dtype or values.dtype

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        return self.values[rows]


class FailingArray(RowArray):
    """An array that raises an error after the first rows."""

    def __init__(self, values, error):
        super().__init__(values)
        self.error = error

    def __getitem__(self, rows):
        if rows.start:
            raise self.error
        return super().__getitem__(rows)


def h5py_dataset(directory):
    file = h5py.File(directory / "X.h5", "w")
    return file.create_dataset("m", data=X, chunks=(64, 3), compression="gzip")


def memmap(directory):
    np.save(directory / "X.npy", X)
    return np.load(directory / "X.npy", mmap_mode="r")


def strided_array(_):
    wide = np.zeros((406, 21))
    wide[::2, ::3] = X
    wide.flags.writeable = False
    return wide[::2, ::3]


def netcdf_array(directory):
    xarray.Dataset({"x": (("t", "s"), X)}).to_netcdf(directory / "X.nc", engine="scipy")
    return xarray.open_dataset(directory / "X.nc", engine="scipy")["x"]


MAKERS = {
    "ndarray": lambda _: X,
    "Fortran order": lambda _: np.asfortranarray(X),
    "not contiguous, read-only": strided_array,
    "big-endian": lambda _: X.astype(">f8"),
    "memmap": memmap,
    "masked array without masked entries": lambda _: np.ma.masked_array(X, mask=False),
    "h5py": h5py_dataset,
    "zarr": lambda directory: zarr.create_array(directory / "X.zarr", data=X, chunks=(50, 4)),
    "rows by slices": lambda _: RowArray(X),
    "dask": lambda _: dask.array.from_array(X, chunks=(50, 4)),
    "dask, uneven": lambda _: dask.array.from_array(X, chunks=((1, 0, 150, 52), (7,))),
    "pandas": lambda _: pandas.DataFrame(X),
    "xarray": lambda _: xarray.DataArray(X, dims=("time", "place")),
    "xarray, dask": lambda _: xarray.DataArray(X, dims=("a", "b")).chunk({"a": 30}),
    "xarray, a file": netcdf_array,
    "csr": lambda _: scipy.sparse.csr_array(X),
    "coo": lambda _: scipy.sparse.coo_array(X),
}


def read_shards(store):
    return [file.read_bytes() for file in sorted(store.glob("shard-*.npy"))]


@pytest.mark.filterwarnings("ignore:.* is sparse ")
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_every_array_gives_the_store_of_a_file(tmp_path, make):
    np.save(tmp_path / "file.npy", X)
    encode(tmp_path / "file.npy", tmp_path / "expected", 5, 3)
    encode(make(tmp_path), tmp_path / "store", 5, 3)
    assert read_shards(tmp_path / "store") == read_shards(tmp_path / "expected")
    manifests = [(tmp_path / name / "manifest.json").read_bytes() for name in ("store", "expected")]
    assert manifests[0] == manifests[1]


def test_a_private_memory_map_keeps_its_changes(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((4096, 7)))
    private = np.load(tmp_path / "X.npy", mmap_mode="c")
    private[:] = 3
    encode(private, tmp_path / "store", 3, 2)
    assert (private == 3).all()


# --- frames, sparse matrices and Dask -----------------------------------------------------


@pytest.mark.parametrize(
    ("array", "names"),
    [
        (pandas.DataFrame(X, columns=NAMES), NAMES),
        (pandas.DataFrame(X, columns=["a", "a", *"cdefg"]), ("a", "a", *"cdefg")),
        (pandas.DataFrame(X), ()),
        (pandas.DataFrame(X, columns=[1, *"bcdefg"]), ()),
        (xarray.DataArray(X, dims=("t", "x"), coords={"x": list(NAMES)}), NAMES),
        (xarray.DataArray(X, dims=("t", "x"), coords={"x": list(NAMES)}).chunk(40), NAMES),
        (xarray.DataArray(X, dims=("t", "x"), coords={"x": range(7)}), ()),
    ],
)
def test_column_names_that_are_text_are_stored(tmp_path, array, names):
    assert encode(array, tmp_path / "store", 4, 2).column_names == names
    assert open_store(tmp_path / "store").manifest.column_names == names


def test_columns_of_a_frame_may_have_different_dtypes(tmp_path):
    frame = pandas.DataFrame(
        {
            "whole": pandas.array([1, 2, 3], "Int64"),
            "true": [True, False, True],
            "half": np.array([0.5, 1.5, 2.5], np.float32),
            "few": pandas.arrays.SparseArray([0.0, 0.0, 7.0]),
            "small": pandas.array([0.25, 0.5, 1], "Float32"),
        }
    )
    assert encode(frame, tmp_path / "store", 3, 2).dtype == "float64"
    decode(tmp_path / "store", tmp_path / "out.npy")
    expected = [[1, 1, 0.5, 0, 0.25], [2, 0, 1.5, 0, 0.5], [3, 1, 2.5, 7, 1]]
    assert np.allclose(np.load(tmp_path / "out.npy"), expected, rtol=0, atol=1e-14)


def test_a_sparse_array_causes_a_warning_and_counts_as_memory(tmp_path):
    random = scipy.sparse.random(90, 40, 0.05, random_state=0)
    message = r"the dia_array is sparse \(.*% of 90 x 40.*58112 bytes"
    with pytest.warns(UserWarning, match=message):
        encode(scipy.sparse.dia_array(random), tmp_path / "store", 4, 2)
    decode(tmp_path / "store", tmp_path / "out.npy")
    assert np.allclose(np.load(tmp_path / "out.npy"), random.toarray(), rtol=0, atol=1e-14)
    large = scipy.sparse.random(20_000, 100, 0.5, random_state=0, format="csc")
    with pytest.raises(InputError, match=r"memory 175M is too small, expected at least 19\dM"):
        encode(large, tmp_path / "large", 5, 3, memory=175 << 20)


def test_each_dask_chunk_is_computed_once_by_the_chosen_scheduler(tmp_path):
    computed, calls = [], []

    def block(block_info=None):
        (rows, columns) = block_info[None]["array-location"]
        computed.append((rows[0], columns[0]))
        return X[slice(*rows), slice(*columns)]

    def get(graph, keys, **options):
        calls.append(keys)
        return dask.get(graph, keys)

    array = dask.array.map_blocks(
        block, chunks=((50, 50, 50, 53), (4, 3)), dtype=X.dtype, meta=np.empty((0, 0))
    )
    with dask.config.set(scheduler=get):
        encode_blocks(array, tmp_path / "store", 5, 3, runner=SmallPiecesRunner())
    assert sorted(computed) == [(row, column) for row in (0, 50, 100, 150) for column in (0, 4)]
    assert calls


# --- bad input ----------------------------------------------------------------------------


def with_entry(row, column, value, dtype=float):
    matrix = X.astype(dtype)
    matrix[row, column] = value
    return matrix


def closed_dataset():
    with h5py.File("closed.h5", "w", driver="core", backing_store=False) as file:
        return file.create_dataset("m", data=X)


def text_frame():
    frame = pandas.DataFrame(X, columns=NAMES)
    frame["b"] = "here"
    frame["day"] = pandas.Timestamp("2024-01-01")
    return frame


DASK = dask.array.from_array(X, chunks=50)
FRAME = pandas.DataFrame({"a": [1.0, 2, 3], "b": pandas.array([1, None, 3], "Int64")})


class TorchTensor:
    shape, dtype = (3, 3), "torch.float32"


BAD = {
    "a list": ([[1.0, 2.0]], r"X is a list, expected a path, or an array with .*numpy\.asarray"),
    "a cube": (X[None], r"the ndarray has shape \(1, 203, 7\), expected \(rows, columns\)"),
    "no rows": (X[:0], r"the ndarray has shape \(0, 7\), expected"),
    "a Dataset": (xarray.Dataset({"a": ("t", X[0])}), r"X is a xarray.*Dataset, expected a path"),
    "a group": (
        h5py.File("group.h5", "w", driver="core", backing_store=False),
        r"X is a h5py.*File, .*: choose one of its arrays",
    ),
    "columns of text": (
        text_frame(),
        r"the DataFrame has columns without numbers, 'b' \(.*\), 'day' \(datetime64.*\): "
        r"leave them out with X\.drop\(columns=\.\.\.\)",
    ),
    "NaN": (with_entry(150, 3, np.nan), r"the ndarray holds nan at row 150, column 3 \(counted f"),
    "too large": (
        RowArray(with_entry(9, 6, 1e300)),
        r"1e\+300 at row 9, column 6 .*the range of float32",
    ),
    "a missing number": (FRAME, r"holds nan at row 1, column 1 \(counted from 0\), 'b', expected"),
    "masked": (np.ma.masked_equal(X, X[99, 4]), r"is masked at row 99, column 4 .*X\.filled\(0\)"),
    "a closed file": (closed_dataset(), r"X, a h5py.*Dataset, cannot be read: "),
    "unknown chunks": (DASK[DASK[:, 0] > 0], r"of unknown size, .*X\.compute_chunk_sizes\(\)"),
    "a shape without numbers": (
        RowArray(X, shape=(None, 7)),
        r"has shape \(None, 7\), expected num",
    ),
    "a dtype of torch": (TorchTensor(), r"has dtype torch\.float32, expected a NumPy dtype"),
    "fewer rows": (RowArray(X, shape=(300, 7)), r"shape .* from row \d+ on, expected \(\d+, 7\)"),
    "wrong dtype": (
        RowArray(X, dtype=np.dtype("f4")),
        r"returned float64 at row \d+, expected its",
    ),
    "wrong chunks": (
        DASK.map_blocks(lambda block: block[:-1], dtype=float),
        r"the dask Array returned shape \(49, 7\) for 50 rows",
    ),
    "failing chunks": (
        DASK.map_blocks(lambda block: 1 / 0, dtype=float, meta=np.empty((0, 0))),
        "the dask Array cannot be computed, rows 0 to 49: ZeroDivisionError",
    ),
    "an error": (FailingArray(X, OSError("broken")), r"read, rows \d+ to \d+: OSError: broken"),
}


@pytest.mark.filterwarnings("ignore:.* is sparse ")
@pytest.mark.parametrize("name", BAD)
def test_bad_arrays_are_named_and_leave_no_files(tmp_path, name):
    array, message = BAD[name]
    options = {"dtype": "float32"} if name == "too large" else {}
    with pytest.raises(InputError, match=message) as error:
        encode(array, tmp_path / "store", 5, 3, **options)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []
    if name == "an error":
        assert error.value.__cause__ is array.error


# --- interrupted and repeated -------------------------------------------------------------


def test_an_interrupted_encode_of_an_array_leaves_no_files(tmp_path):
    array = FailingArray(X, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        encode_blocks(array, tmp_path / "store", 5, 3, runner=SmallPiecesRunner())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_resumed_encode_of_an_array_starts_over(tmp_path):
    store = tmp_path / "store"
    run_until_death(lambda: encode(X, store, 5, 3, runner=DyingRunner()))
    command = f"cec_mpi.encode(X, '{store}', machines=5, recovery=3, resume=True)"
    with pytest.raises(InputError, match=f"incomplete: remove it, or .*{re.escape(command)}"):
        encode(X, store, 5, 3)
    for source, machines, message in (
        (X[:200], 5, "was started with another X"),
        (X, 6, "was started with machines 5, not 6"),
    ):
        with pytest.raises(InputError, match=message):
            encode(source, store, machines, 3, resume=True)
    encode(X, store, 5, 3, resume=True)
    encode(X, tmp_path / "expected", 5, 3)
    assert read_shards(store) == read_shards(tmp_path / "expected")
    message = "is complete, but may have been made from another version of the ndarray"
    with pytest.raises(InputError, match=message):
        encode(X, store, 5, 3, resume=True)
    with pytest.raises(InputError, match="choose another name for the store, or remove it"):
        encode(X, store, 5, 3)


def test_a_runner_and_a_communicator_exclude_each_other(tmp_path):
    with pytest.raises(InputError, match="got both a runner and comm, expected only one of them"):
        encode(X, tmp_path / "store", 5, 3, runner=LocalRunner(), comm=object())
