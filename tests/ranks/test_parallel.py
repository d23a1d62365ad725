"""Work on stores that is shared among ranks."""

import shutil
from dataclasses import dataclass, field

import numpy as np
import pytest

from cec_mpi.encoding.collective import WORK_TYPES
from cec_mpi.errors import CecError
from cec_mpi.runtime.wire.collective.shared_work import run_shared
from cec_mpi.store import add_machine, decode, repair, verify
from helpers.stores import encode_blocks

X = np.random.default_rng(0).standard_normal((997, 33))


@pytest.fixture
def here(comm, tmp_path_factory):
    """One directory for all ranks."""
    path = tmp_path_factory.mktemp("shared") if comm.rank == 0 else None
    return comm.bcast(path)


def contents(store):
    return {path.name: path.read_bytes() for path in store.iterdir()}


def test_each_operation_gives_the_files_of_one_process(comm, here):
    progress = []

    def work(runner):
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
        np.testing.assert_allclose(np.load(here / "Y.npy"), X, rtol=0, atol=1e-13)
        return 0

    run_shared(comm, work, WORK_TYPES, lambda done, total: progress.append((done, total)))
    if comm.rank == 0:
        assert progress[-1][0] == progress[-1][1] > 0
        assert len(progress) >= comm.size


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
