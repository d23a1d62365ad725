"""Work on stores that is shared among ranks."""

import shutil
from dataclasses import dataclass, field

import numpy as np
import pytest

from cec_mpi import open_operator
from cec_mpi.encoding.collective import WORK_TYPES
from cec_mpi.errors import CecError, DamagedStoreError, InputError
from cec_mpi.runtime.wire.collective.shared_work import run_shared
from cec_mpi.store import add_machine, decode, repair, verify
from helpers.stores import encode_blocks

X = np.random.default_rng(0).standard_normal((997, 33))


@pytest.fixture
def here(comm, tmp_path_factory):
    """One directory for all ranks."""
    path = tmp_path_factory.mktemp("shared") if comm.rank == 0 else None
    return comm.bcast(path)


def run_on_all(comm, body, **options):
    """Run `body` on rank 0 with a runner for all ranks; return its result or error there."""
    results = []

    def work(runner):
        try:
            results.append(body(runner))
        except CecError as error:
            results.append(error)
        return 0

    run_shared(comm, work, WORK_TYPES, **options)
    return results[0] if comm.rank == 0 else None


def contents(store):
    return {path.name: path.read_bytes() for path in store.iterdir()}


@pytest.mark.parametrize(("dtype", "order"), [("float32", "F"), ("float64", "C")])
def test_encoding_gives_the_bytes_of_one_process(comm, here, dtype, order):
    if comm.rank == 0:
        np.save(here / "X.npy", np.asarray(X, dtype, order=order))
        encode_blocks(here / "X.npy", here / "alone", 5, 3)
    seen = []
    run_on_all(
        comm,
        lambda runner: encode_blocks(here / "X.npy", here / "store", 5, 3, runner=runner),
        on_progress=lambda done, total: seen.append((done, total)),
    )
    if comm.rank == 0:
        assert contents(here / "store") == contents(here / "alone")
        assert seen[-1][0] == seen[-1][1] > 0
        assert seen == sorted(seen)
        assert len(seen) >= comm.size


def test_each_operation_gives_the_files_of_one_process(comm, here):
    def life(runner):
        np.save(here / "X.npy", X)
        encode_blocks(here / "X.npy", here / "store", 5, 3, runner=runner)
        (here / "store" / "shard-0002.npy").unlink()
        shard = np.load(here / "store" / "shard-0004.npy", mmap_mode="r+")
        shard[100, 5] += 1
        shard.flush()
        alone = shutil.copytree(here / "store", here / "alone")
        assert verify(here / "store", runner).problems == verify(alone).problems
        done = repair(here / "store", runner=runner)
        assert done == repair(alone)
        assert list(done.rebuilt) == [2, 4]
        assert contents(here / "store") == contents(alone)
        assert add_machine(here / "store", runner=runner).code.machines == 6
        add_machine(alone)
        assert contents(here / "store") == contents(alone)
        decode(here / "store", here / "Y.npy", runner=runner)
        return np.abs(np.load(here / "Y.npy") - X).max()

    error = run_on_all(comm, life)
    if comm.rank == 0:
        assert error < 1e-13


def test_an_error_of_one_rank_is_raised_on_rank_0(comm, here):
    def spoilt(runner):
        matrix = X.copy()
        matrix[500, 7] = np.nan
        np.save(here / "bad.npy", matrix)
        return encode_blocks(here / "bad.npy", here / "store", 5, 3, runner=runner)

    error = run_on_all(comm, spoilt)
    if comm.rank == 0:
        assert isinstance(error, InputError)
        assert "holds nan at row 500, column 7" in str(error)
        assert [path.name for path in here.iterdir()] == ["bad.npy"]
    assert comm.allreduce(1) == comm.size


@dataclass
class Failing:
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
    def body(runner):
        with pytest.raises((CecError, ZeroDivisionError), match="by nothing"):
            runner.run(Failing(piece))
        assert sorted(runner.run(Failing(77))) == list(range(40))
        return 0

    run_shared(comm, body, [Failing])


def test_a_damaged_block_stops_the_step_that_reads_it(comm, here):
    if comm.rank == 0:
        np.save(here / "X.npy", X)
        encode_blocks(here / "X.npy", here / "store", 3, 2)
        shard = np.load(here / "store" / "shard-0002.npy", mmap_mode="r+")
        shard[400, 5] += 1
        shard.flush()
    comm.Barrier()

    def multiply(**options):
        with open_operator(here / "store", comm, **options) as operator:
            if operator is not None:
                operator.matvec(np.ones(33))

    multiply(verify="never")
    with pytest.raises(DamagedStoreError) as raised:
        multiply()
    if comm.rank == 0:
        assert "step 0 failed on machine 2: " in str(raised.value)
        assert "shard-0002.npy: rows 390..404 do not match their checksum" in str(raised.value)
