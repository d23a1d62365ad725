"""X from the memory of a program: arrays, frames and sparse matrices of other libraries."""

import mmap
import os
import re
import subprocess
import sys
import threading
import warnings
from collections import Counter

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
from cec_mpi.encoding.sources import open_array
from cec_mpi.errors import InputError
from cec_mpi.store import decode, open_store
from cec_mpi.store.work import LocalRunner
from helpers.stores import encode_blocks

X = np.random.default_rng(0).standard_normal((203, 7))
NAMES = tuple("abcdefg")


class Rows:
    """As little of an array as will do: a shape, a dtype, and slices of rows."""

    def __init__(self, values, shape=None, dtype=None):
        self.values = values
        self.shape = shape or values.shape
        self.dtype = dtype or values.dtype
        self.taken = []

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        self.taken.append(rows)
        return self.values[rows]


class Failing(Rows):
    """Raises something once it has given some rows."""

    error = ZeroDivisionError("nobody thought of this")

    def __getitem__(self, rows):
        if len(self.taken) > 1:
            raise self.error
        return super().__getitem__(rows)


class Interrupted(Failing):
    error = KeyboardInterrupt()


def h5py_dataset(directory):
    file = h5py.File(directory / "X.h5", "w")
    return file.create_dataset("m", data=X, chunks=(64, 3), compression="gzip")


def zarr_array(directory):
    array = zarr.create_array(directory / "X.zarr", shape=X.shape, chunks=(50, 4), dtype=X.dtype)
    array[:] = X
    return array


def memmap(mode):
    def make(directory):
        np.save(directory / "X.npy", X)
        return np.load(directory / "X.npy", mmap_mode=mode)

    return make


def read_only(_):
    frozen = X.copy()
    frozen.flags.writeable = False
    return frozen


def with_holes(_):
    wide = np.zeros((406, 21))
    wide[::2, ::3] = X
    return wide[::2, ::3]


def in_netcdf(directory):
    """Read only when rows are needed."""
    xarray.Dataset({"x": (("t", "s"), X)}).to_netcdf(directory / "X.nc", engine="scipy")
    return xarray.open_dataset(directory / "X.nc", engine="scipy")["x"]


MAKERS = {
    "ndarray": lambda _: X,
    "Fortran order": lambda _: np.asfortranarray(X),
    "not contiguous": with_holes,
    "backwards": lambda _: np.array(X[::-1, ::-1])[::-1, ::-1],
    "big-endian": lambda _: X.astype(">f8"),
    "read-only": read_only,
    "memmap": memmap("r"),
    "memmap, private": memmap("c"),
    "a matrix": lambda _: scipy.sparse.csr_matrix(X).todense(),
    "masked, nothing is": lambda _: np.ma.masked_array(X, mask=False),
    "h5py": h5py_dataset,
    "zarr": zarr_array,
    "rows by slices": lambda _: Rows(X),
    "dask": lambda _: dask.array.from_array(X, chunks=(50, 4)),
    "dask, uneven": lambda _: dask.array.from_array(X, chunks=((1, 0, 150, 52), (7,))),
    "pandas": lambda _: pandas.DataFrame(X),
    "xarray": lambda _: xarray.DataArray(X, dims=("time", "place")),
    "xarray, dask": lambda _: xarray.DataArray(X, dims=("a", "b")).chunk({"a": 30}),
    "xarray, a file": in_netcdf,
    "csr": lambda _: scipy.sparse.csr_array(X),
    "csc": lambda _: scipy.sparse.csc_matrix(X),
    "coo": lambda _: scipy.sparse.coo_array(X),
}


def shards(store):
    return [file.read_bytes() for file in sorted(store.glob("shard-*.npy"))]


def encoded(array, store, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is sparse .*")
        return encode(array, store, 5, 3, **options)


class OneByOne(LocalRunner):
    """Pieces as small as they can be."""

    processes = 1 << 20


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_every_array_gives_the_bytes_of_a_file(tmp_path, make):
    np.save(tmp_path / "file.npy", X)
    encode(tmp_path / "file.npy", tmp_path / "expected", 5, 3)
    encoded(make(tmp_path), tmp_path / "store")
    assert shards(tmp_path / "store") == shards(tmp_path / "expected")
    names = ("manifest.json", "checksums-1.bin")
    for name in (file.name for file in (tmp_path / "expected").iterdir() if file.name in names):
        assert (tmp_path / "store" / name).read_bytes() == (
            tmp_path / "expected" / name
        ).read_bytes()


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", "i8", ">i2", "u1", "?"])
def test_integers_and_halves_are_encoded_as_those_of_files_are(tmp_path, dtype):
    matrix = np.abs(10 * X).astype(dtype)
    np.save(tmp_path / "file.npy", matrix)
    expected = encode(tmp_path / "file.npy", tmp_path / "expected", 5, 3)
    for name, array in {"array": matrix, "rows": Rows(matrix), "frame": frame_of(matrix)}.items():
        made = encode(array, tmp_path / name, 5, 3)
        assert made.dtype == expected.dtype
        assert shards(tmp_path / name) == shards(tmp_path / "expected")


def frame_of(matrix):
    return pandas.DataFrame(matrix.astype(matrix.dtype.newbyteorder("=")))


@pytest.mark.parametrize("shape", [(1, 1), (2, 9999), (1000, 3)])
def test_rows_of_any_length_are_read_once(tmp_path, shape):
    matrix = np.random.default_rng(1).standard_normal(shape)
    array = Rows(matrix)
    np.save(tmp_path / "file.npy", matrix)
    encode_blocks(tmp_path / "file.npy", tmp_path / "expected", 3, 2)
    encode_blocks(array, tmp_path / "store", 3, 2, runner=OneByOne())
    assert shards(tmp_path / "store") == shards(tmp_path / "expected")
    if shape[1] == 3:
        times = Counter(row for rows in array.taken for row in range(rows.start, rows.stop))
        assert times == dict.fromkeys(range(shape[0]), 1)


# --- names of columns ---------------------------------------------------------------------


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
def test_columns_keep_names_that_are_text(tmp_path, array, names):
    assert encode(array, tmp_path / "store", 4, 2).column_names == names
    assert open_store(tmp_path / "store").manifest.column_names == names


def test_a_frame_of_many_kinds_of_numbers(tmp_path):
    frame = pandas.DataFrame(
        {
            "whole": pandas.array([1, 2, 3], "Int64"),
            "true": [True, False, True],
            "half": np.array([0.5, 1.5, 2.5], np.float32),
            "few": pandas.arrays.SparseArray([0.0, 0.0, 7.0]),
            "small": pandas.array([0.25, 0.5, 1], "Float32"),
        }
    )
    made = encode(frame, tmp_path / "store", 3, 2)
    decode(tmp_path / "store", tmp_path / "out.npy")
    assert made.dtype == "float64"
    expected = [[1, 1, 0.5, 0, 0.25], [2, 0, 1.5, 0, 0.5], [3, 1, 2.5, 7, 1]]
    assert np.allclose(np.load(tmp_path / "out.npy"), expected, rtol=0, atol=1e-14)


# --- before encoding ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csr_array", "dia_array"])
def test_a_sparse_matrix_is_taken_with_a_warning(tmp_path, kind):
    random = scipy.sparse.random(90, 40, 0.05, random_state=0)
    sparse = getattr(scipy.sparse, kind)(random)
    with pytest.warns(UserWarning, match=rf"the {kind} is sparse \(.*% of 90 x 40.*58112 bytes"):
        encode(sparse, tmp_path / "store", 4, 2)
    decode(tmp_path / "store", tmp_path / "out.npy")
    assert np.allclose(np.load(tmp_path / "out.npy"), random.toarray(), rtol=0, atol=1e-14)


def test_entries_of_a_sparse_matrix_at_one_place_are_added(tmp_path):
    twice = scipy.sparse.coo_array(([1.0, 2.0, 5.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    encoded_twice = open_array(twice)
    out = np.empty((2, 2))
    encoded_twice.read(0, 2, 0, 2, out)
    assert out.tolist() == [[0, 3], [5, 0]]


def test_the_copy_of_a_sparse_matrix_counts_as_memory(tmp_path):
    sparse = scipy.sparse.random(20_000, 100, 0.5, random_state=0, format="csc")
    with pytest.raises(InputError, match=r"memory 175M is too small, expected at least 19\dM"):
        encoded(sparse, tmp_path / "store", memory=175 << 20)


# --- Dask ---------------------------------------------------------------------------------


def counting(computed):
    def block(block_info=None):
        (rows, columns) = block_info[None]["array-location"]
        computed.append((rows[0], columns[0]))
        return X[slice(*rows), slice(*columns)]

    return dask.array.map_blocks(
        block, chunks=((50, 50, 50, 53), (4, 3)), dtype=X.dtype, meta=np.empty((0, 0))
    )


def test_each_chunk_is_computed_once(tmp_path):
    computed = []
    encode_blocks(counting(computed), tmp_path / "store", 5, 3, runner=OneByOne())
    assert sorted(computed) == [(row, column) for row in (0, 50, 100, 150) for column in (0, 4)]


def test_the_scheduler_that_a_user_has_chosen_computes(tmp_path):
    used = []

    def get(graph, keys, **options):
        used.append(keys)
        return dask.get(graph, keys)

    with dask.config.set(scheduler=get):
        encode(dask.array.from_array(X, chunks=100), tmp_path / "store", 5, 3)
    assert len(used) == 3


# --- what is refused ----------------------------------------------------------------------


def changed(row, column, value, dtype=float):
    matrix = X.astype(dtype)
    matrix[row, column] = value
    return matrix


def closed_dataset():
    with h5py.File("closed.h5", "w", driver="core", backing_store=False) as file:
        return file.create_dataset("m", data=X)


def group():
    return h5py.File("group.h5", "w", driver="core", backing_store=False)


def text_frame():
    frame = pandas.DataFrame(X, columns=NAMES)
    frame["b"] = "here"
    frame["day"] = pandas.Timestamp("2024-01-01")
    return frame


def frame_without_a_number():
    return pandas.DataFrame({"a": [1.0, 2, 3], "b": pandas.array([1, None, 3], "Int64")})


def unknown_chunks():
    array = dask.array.from_array(X, chunks=50)
    return array[array[:, 0] > 0]


class Strange:
    shape, dtype = (3, 3), "torch.float32"

    def __repr__(self):
        return "strange"


def lying_dask():
    return dask.array.from_array(X, chunks=50).map_blocks(lambda block: block[:-1], dtype=float)


BAD = {
    "a list": ([[1.0, 2.0]], r"X is a list, expected a path, or an array with .*numpy\.asarray"),
    "nothing": (None, r"X is a NoneType, expected a path, or an array with a shape"),
    "a number": (np.float64(3), r"the float64 has shape \(\), expected \(rows, columns\)"),
    "a vector": (X[0], r"the ndarray has shape \(7,\), expected \(rows, columns\), both"),
    "a cube": (X[None], r"the ndarray has shape \(1, 203, 7\), expected \(rows, columns\)"),
    "a cube of dask": (dask.array.ones((2, 2, 2)), r"the dask Array has shape \(2, 2, 2\)"),
    "no rows": (X[:0], r"the ndarray has shape \(0, 7\), expected"),
    "no columns": (pandas.DataFrame(index=[1, 2]), r"the DataFrame has shape \(2, 0\), exp"),
    "complex": (
        X + 1j,
        r"the ndarray holds complex numbers \(complex128\), which are not supported",
    ),
    "objects": (X.astype(object), r"the ndarray has dtype object, expected real numbers"),
    "texts": (X.astype(str), r"the ndarray has dtype <U32, expected real numbers"),
    "dates": (X.astype("M8[s]"), r"the ndarray has dtype datetime64\[s\], expected real"),
    "records": (np.zeros((2, 2), "f8,f8"), r"the ndarray has dtype .*, expected real numbers"),
    "a Series": (pandas.Series(X[0]), r"the Series has shape \(7,\), expected \(rows, columns\)"),
    "a Dataset": (xarray.Dataset({"a": ("t", X[0])}), r"X is a xarray.*Dataset, expected a path"),
    "a group": (group(), r"X is a h5py.*File, .*: choose one of its arrays"),
    "columns of text": (
        text_frame(),
        r"the DataFrame has columns without numbers, 'b' \(.*\), 'day' \(datetime64.*\): "
        r"leave them out with X\.drop\(columns=\.\.\.\)",
    ),
    "NaN": (changed(150, 3, np.nan), r"the ndarray holds nan at row 150, column 3 \(counted f"),
    "infinity": (Rows(changed(9, 6, -np.inf)), r"the Rows holds -inf at row 9, column 6"),
    "too large": (
        Rows(changed(9, 6, 1e300), dtype=np.dtype("f8")),
        r"the Rows holds 1e\+300 at row 9, column 6 .*in the range of float32",
    ),
    "NaN in a frame": (
        pandas.DataFrame(changed(2, 1, np.nan), columns=NAMES),
        r"the DataFrame holds nan at row 2, column 1 \(counted from 0\), 'b', expected finite",
    ),
    "a missing number": (frame_without_a_number(), r"holds nan at row 1, column 1 .*, 'b', exp"),
    "NaN in dask": (dask.array.from_array(changed(2, 1, np.nan), chunks=50), r"nan at row 2, c"),
    "NaN in a sparse": (scipy.sparse.csr_array(changed(2, 1, np.nan)), r"nan at row 2, column 1"),
    "masked": (
        np.ma.masked_equal(X, X[99, 4]),
        r"the MaskedArray is masked at row 99, column 4 .*X\.filled\(0\)",
    ),
    "a closed file": (closed_dataset(), r"X, a h5py.*Dataset, cannot be read: "),
    "unknown chunks": (unknown_chunks(), r"chunks of unknown size, .*X\.compute_chunk_sizes\(\)"),
    "a shape of no numbers": (Rows(X, shape=(None, 7)), r"has shape \(None, 7\), expected num"),
    "a dtype of others": (Strange(), r"has dtype torch\.float32, expected a NumPy dtype"),
    "fewer rows": (
        Rows(X, shape=(300, 7)),
        r"the Rows returned shape .* from row \d+ on, expected \(\d+, 7\) \(its shape",
    ),
    "other columns": (Rows(X, shape=(203, 1)), r"the Rows returned shape \(\d+, 7\) for"),
    "other numbers": (
        Rows(X, dtype=np.dtype("f4")),
        r"returned float64 at row \d+, expected its dtype float32",
    ),
    "texts after all": (Rows(X.astype(str), dtype=X.dtype), r"the Rows returned <U32 at row"),
    "other chunks": (lying_dask(), r"the dask Array returned shape \(49, 7\) for 50 rows"),
    "an error": (Failing(X), r"the Failing cannot be read, rows \d+ to \d+: ZeroDivisionError: no"),
}


@pytest.mark.parametrize(("array", "message"), BAD.values(), ids=BAD)
def test_what_is_no_matrix_is_refused_and_leaves_nothing(tmp_path, array, message):
    options = {"dtype": "float32"} if "float32" in message and "1e" in message else {}
    with pytest.raises(InputError, match=message) as refused:
        encoded(array, tmp_path / "store", **options)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
    if isinstance(array, Failing):
        assert refused.value.__cause__ is Failing.error


def test_an_interrupted_encode_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        encode_blocks(Interrupted(X), tmp_path / "store", 5, 3, runner=OneByOne())
    assert list(tmp_path.iterdir()) == []


# --- again --------------------------------------------------------------------------------

DYING = """
import os, sys
import numpy as np
import cec_mpi
class Dying:
    shape, dtype = (203, 7), np.dtype(float)
    def __getitem__(self, rows):
        os._exit(7)
cec_mpi.encode(Dying(), sys.argv[1], 5, 3)
"""


def test_an_encode_that_died_is_resumed_from_the_start(tmp_path):
    store = tmp_path / "store"
    died = subprocess.run([sys.executable, "-c", DYING, store])
    assert died.returncode == 7
    again = f"cec_mpi.encode(X, '{store}', machines=5, recovery=3, resume=True)"
    with pytest.raises(InputError, match=f"incomplete: remove it, or .*{re.escape(again)}"):
        encode(X, store, 5, 3)
    with pytest.raises(InputError, match="was started with another X"):
        encode(X[:200], store, 5, 3, resume=True)
    with pytest.raises(InputError, match="was started with machines 5, not 6"):
        encode(X, store, 6, 3, resume=True)
    encode(X, store, 5, 3, resume=True)
    encode(X, tmp_path / "expected", 5, 3)
    assert shards(store) == shards(tmp_path / "expected")


def test_a_complete_store_may_be_of_another_array(tmp_path):
    encode(X, tmp_path / "store", 5, 3, resume=True)
    message = "is complete, but may have been made from another version of the ndarray"
    with pytest.raises(InputError, match=message):
        encode(X, tmp_path / "store", 5, 3, resume=True)
    with pytest.raises(InputError, match="choose another name for the store, or remove it"):
        encode(X, tmp_path / "store", 5, 3)


def test_two_threads_encode_one_array(tmp_path):
    array = dask.array.from_array(X, chunks=(50, 4))
    threads = [
        threading.Thread(target=encode_blocks, args=(array, tmp_path / name, 5, 3)) for name in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert shards(tmp_path / "a") == shards(tmp_path / "b")
    assert len(shards(tmp_path / "a")) == 5


# --- what it takes ------------------------------------------------------------------------

LITTLE = 256 << 20
PEAK = "next(int(line.split()[1]) for line in open('/proc/self/status') if 'VmHWM' in line)"
MEMORY_USE = f"""
import os, sys
import numpy as np
import cec_mpi
{{make}}
before = {PEAK}
cec_mpi.encode(X, sys.argv[1] + "/store", 6, 3, memory={LITTLE})
print({PEAK} - before)
"""
LARGE = {
    "memmap": """
X = np.lib.format.open_memmap(
    sys.argv[1] + "/X.npy", mode="w+", dtype=np.float32, shape=(1_000_000, 100))
""",
    "dask": """
import dask.array
X = dask.array.zeros((400_000, 100), dtype=np.float32, chunks=(20_000, 50))
""",
}


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_memory_stays_in_its_bound(tmp_path, make):
    program = MEMORY_USE.format(make=make)
    used = int(subprocess.check_output([sys.executable, "-c", program, tmp_path]))
    assert used < LITTLE >> 10


def test_what_was_changed_in_a_private_map_is_not_forgotten(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((4096, 7)))
    private = np.load(tmp_path / "X.npy", mmap_mode="c")
    private[:] = 3
    encode(private, tmp_path / "store", 3, 2)
    assert private.nbytes > 2 * mmap.PAGESIZE
    assert (private == 3).all()


def test_no_library_is_loaded_for_an_array_of_another():
    program = (
        "import sys, tempfile, numpy as np, cec_mpi, os\n"
        "with tempfile.TemporaryDirectory() as place:\n"
        "    cec_mpi.encode(np.eye(5), place + '/store', 3, 2)\n"
        "wanted = {'dask', 'pandas', 'xarray', 'h5py', 'zarr', 'scipy', 'mpi4py'}\n"
        "sys.exit(str(wanted & set(sys.modules)) if wanted & set(sys.modules) else 0)"
    )
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_runner_and_a_communicator_are_one_too_many(tmp_path):
    with pytest.raises(InputError, match="got both a runner and comm, expected only one of them"):
        encode(X, tmp_path / "store", 5, 3, runner=LocalRunner(), comm=object())
    encode(X, tmp_path / "store", 5, 3, runner=LocalRunner(threads=1))
