"""X encoded by all ranks together, each of which has its own."""

from itertools import chain

import dask.array
import numpy as np
import pandas
import pytest
import scipy.sparse

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.store.manifest_files import text_of
from helpers.stores import encode_blocks

X = np.random.default_rng(0).standard_normal((997, 33))
NAMES = tuple(f"c{k}" for k in range(33))


@pytest.fixture
def here(comm, tmp_path_factory):
    """One directory for all ranks."""
    path = tmp_path_factory.mktemp("encode") if comm.rank == 0 else None
    return comm.bcast(path)


def contents(store):
    return {path.name: path.read_bytes() for path in store.glob("shard-*.npy")}


class Counted:
    """Rows by slices, and which were asked for."""

    shape, dtype = X.shape, X.dtype

    def __init__(self):
        self.rows = []

    def __getitem__(self, rows):
        self.rows += range(rows.start, rows.stop)
        return X[rows]


MAKERS = {
    "array": lambda: X,
    "frame": lambda: pandas.DataFrame(X, columns=NAMES),
    "dask": lambda: dask.array.from_array(X, chunks=(100, 20)),
    "sparse": lambda: scipy.sparse.csc_array(X),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.filterwarnings("ignore:.* is sparse")
def test_arrays_give_the_bytes_of_one_process(comm, here, make):
    made = encode_blocks(make(), here / "store", 5, 3, comm=comm)
    assert (made.rows, made.columns) == X.shape
    if comm.rank == 0:
        np.save(here / "X.npy", X)
        encode_blocks(here / "X.npy", here / "alone", 5, 3)
        assert contents(here / "store") == contents(here / "alone")
    assert len(set(comm.allgather(text_of(made)))) == 1


def test_ranks_share_the_rows(comm, here):
    array = Counted()
    encode_blocks(array, here / "store", 5, 3, comm=comm)
    rows = comm.allgather(array.rows)
    assert sorted(chain.from_iterable(rows)) == list(range(len(X)))
    assert all(rows)


def test_a_file_is_shared_too(comm, here):
    if comm.rank == 0:
        np.save(here / "X.npy", X)
    comm.Barrier()
    encode_blocks(here / "X.npy", here / "store", 5, 3, comm=comm)
    if comm.rank == 0:
        encode_blocks(X, here / "alone", 5, 3)
        assert contents(here / "store") == contents(here / "alone")


def refused(comm, here, says, source, **options):
    with pytest.raises(InputError, match=says):
        encode_blocks(source, here / "store", 5, 3, comm=comm, **options)
    comm.Barrier()
    assert not (here / "store").exists()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (X[:-1], "rank 2 has an array of 996 x 33 float64, but rank 0 .* of 997 x 33 float64"),
        (X.astype("f4"), "rank 2 has an array of 997 x 33 float32, but rank 0"),
        ("X.npy", "rank 2 has X.npy, but rank 0 has an array of 997 x 33 float64: expected the"),
        (None, r"X is a NoneType, expected a path, or an array .* \(on rank 2\)"),
    ],
)
def test_ranks_that_do_not_agree_are_refused(comm, here, other, says):
    refused(comm, here, says, other if comm.rank == 2 else X)


@pytest.mark.parametrize("rank", [0, 3])
def test_what_one_rank_finds_all_raise(comm, here, rank):
    bad = X.copy()
    if comm.rank == rank:
        bad[:] = np.nan
    refused(comm, here, "the ndarray holds nan at row", bad)


class Failing(Counted):
    def __getitem__(self, rows):
        raise ZeroDivisionError("nobody thought of this")


@pytest.mark.parametrize("rank", [0, 3])
def test_what_one_array_raises_all_raise(comm, here, rank):
    array = Failing() if comm.rank == rank else Counted()
    refused(comm, here, "cannot be read, rows .*ZeroDivisionError: nobody", array)


def test_a_store_that_exists_is_refused_on_all_ranks(comm, here):
    encode(X, here / "store", 5, 3, comm=comm)
    with pytest.raises(InputError, match="exists already: choose another name for the store"):
        encode(X, here / "store", 5, 3, comm=comm)
