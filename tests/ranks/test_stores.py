"""Stores that all ranks encode, verify, repair, extend and decode."""

import shutil
from dataclasses import dataclass, field
from itertools import chain

import dask.array
import numpy as np
import pytest
import scipy.sparse

from cec_mpi.encoding.collective import WORK_TYPES
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.wire.collective.shared_work import run_shared
from cec_mpi.store import add_machine, decode, repair, verify
from cec_mpi.store.manifest_files import manifest_text
from helpers.sparse import random_sparse
from helpers.stores import encode_blocks, read_files

X = np.random.default_rng(0).standard_normal((997, 33))
SPARSE = random_sparse(200, 90, density=0.1)


@pytest.fixture
def directory(comm, tmp_path_factory):
    """A directory for all ranks."""
    path = tmp_path_factory.mktemp("encode") if comm.rank == 0 else None
    return comm.bcast(path)


class RecordingArray:
    """An array with the rows of X that records the rows that are read."""

    shape, dtype = X.shape, X.dtype

    def __init__(self, error=None):
        self.rows, self.error = [], error

    def __getitem__(self, rows):
        if self.error is not None:
            raise self.error
        self.rows += range(rows.start, rows.stop)
        return X[rows]


DENSE, COPIES = {"machines": 5, "recovery": 3}, {"machines": 3, "copies": 2}


@pytest.mark.parametrize(
    ("matrix", "source", "options"),
    [
        (X, X, DENSE),
        (X, dask.array.from_array(X, chunks=(100, 20)), DENSE),
        (X, scipy.sparse.csc_array(X), DENSE),
        (X, "X.npy", DENSE),
        (SPARSE, SPARSE, COPIES),
        (SPARSE, SPARSE.tocoo(), COPIES),
        (SPARSE, "X.npz", COPIES),
    ],
    ids=["array", "dask", "csc", "file", "copies of csr", "copies of coo", "copies of a file"],
)
@pytest.mark.filterwarnings("ignore:.* is sparse")
def test_shards_have_the_bytes_of_one_process(comm, directory, matrix, source, options):
    if comm.rank == 0:
        np.save(directory / "X.npy", X)
        scipy.sparse.save_npz(directory / "X.npz", SPARSE)
        encode_blocks(matrix, directory / "alone", **options)
    comm.Barrier()
    source = directory / source if isinstance(source, str) else source
    manifest = encode_blocks(source, directory / "store", **options, comm=comm)
    if comm.rank == 0:
        for shard in (directory / "alone").glob("shard-*"):
            assert shard.read_bytes() == (directory / "store" / shard.name).read_bytes()
    assert len(set(comm.allgather(manifest_text(manifest)))) == 1


def test_each_row_is_read_by_one_rank(comm, directory):
    array = RecordingArray()
    encode_blocks(array, directory / "store", 5, 3, comm=comm)
    rows = comm.allgather(array.rows)
    assert sorted(chain.from_iterable(rows)) == list(range(len(X)))
    assert all(rows)


NAN = np.full_like(X, np.nan)
FAILING_ARRAY = RecordingArray(ZeroDivisionError("by nothing"))


@pytest.mark.parametrize(
    ("rank", "source", "message"),
    [
        (2, X[:-1], "rank 2 has an array of 996 x 33 float64, but rank 0 .* of 997 x 33 float64"),
        (2, X.astype("f4"), "rank 2 has an array of 997 x 33 float32, but rank 0"),
        (2, "X.npy", "rank 2 has X.npy, but rank 0 has an array of 997 x 33 float64: expected the"),
        (2, None, r"X is a NoneType, expected a path, or an array .* \(on rank 2\)"),
        (0, NAN, "the ndarray holds nan at row"),
        (3, NAN, "the ndarray holds nan at row"),
        (0, FAILING_ARRAY, "cannot be read, rows .*ZeroDivisionError: by nothing"),
        (3, FAILING_ARRAY, "cannot be read, rows .*ZeroDivisionError: by nothing"),
    ],
)
def test_an_error_of_one_rank_is_raised_on_all(comm, directory, rank, source, message):
    other_source = RecordingArray() if isinstance(source, RecordingArray) else X
    with pytest.raises(InputError, match=message):
        encode_blocks(
            source if comm.rank == rank else other_source, directory / "store", 5, 3, comm=comm
        )
    comm.Barrier()
    assert not (directory / "store").exists()


# --- operations on stores -----------------------------------------------------------------


def test_each_operation_gives_the_files_of_one_process(comm, directory):
    progress = []

    def work(runner):
        np.save(directory / "X.npy", X)
        encode_blocks(directory / "X.npy", directory / "store", 5, 3, runner=runner)
        (directory / "store" / "shard-0002.npy").unlink()
        shard = np.load(directory / "store" / "shard-0004.npy", mmap_mode="r+")
        shard[100, 5] += 1
        shard.flush()
        alone = shutil.copytree(directory / "store", directory / "alone")
        assert verify(directory / "store", runner).problems == verify(alone).problems
        result = repair(directory / "store", runner=runner)
        assert result == repair(alone)
        assert list(result.rebuilt) == [2, 4]
        assert read_files(directory / "store") == read_files(alone)
        assert add_machine(directory / "store", runner=runner).code.machines == 6
        add_machine(alone)
        assert read_files(directory / "store") == read_files(alone)
        decode(directory / "store", directory / "Y.npy", runner=runner)
        np.testing.assert_allclose(np.load(directory / "Y.npy"), X, rtol=0, atol=1e-13)
        return 0

    run_shared(comm, work, WORK_TYPES, lambda done, total: progress.append((done, total)))
    if comm.rank == 0:
        assert progress[-1][0] == progress[-1][1] > 0
        assert len(progress) >= comm.size


@dataclass
class FailingWork:
    """Work of 40 pieces, one of which fails."""

    piece: int
    pieces: list[int] = field(default_factory=lambda: list(range(40)))
    threads: int = 1

    def size(self, piece):
        return 1

    def process(self, piece) -> int:
        if piece == self.piece:
            raise ZeroDivisionError("by nothing")
        return piece

    def flush(self):
        pass


@pytest.mark.parametrize("piece", [0, 15, 39])
def test_an_unexpected_error_ends_the_work_but_not_the_ranks(comm, piece):
    def work(runner):
        with pytest.raises((CecError, ZeroDivisionError), match="by nothing"):
            runner.run(FailingWork(piece))
        assert sorted(runner.run(FailingWork(77))) == list(range(40))
        return 0

    run_shared(comm, work, [FailingWork])
