"""Several shards of one machine are used as one."""

from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import DamagedStoreError
from cec_mpi.machine.machine import Machine
from cec_mpi.store.degraded import DegradedShard
from cec_mpi.store.shard import Loaded, Mended, Shard
from cec_mpi.store.stack import Stack

ROWS, COLUMNS = 100, 30  # of a shard
SEVERAL = [(), ((0, 300),), ((10, 20),), ((95, 105), (290, 300)), ((100, 200),), ((5, 250),)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("stack")
    np.save(path / "X.npy", np.random.default_rng(0).standard_normal((2 * ROWS, COLUMNS)))
    cec_mpi.encode(path / "X.npy", path / "store", 5, 2)
    return cec_mpi.open_store(path / "store")


@pytest.mark.parametrize("intervals", SEVERAL)
@pytest.mark.parametrize("columns", [1, 3])
def test_products_are_those_of_the_shards_below_each_other(store, intervals, columns):
    numbers = (2, 3, 5)
    stack = Stack([store.open_shard(n) for n in numbers])
    whole = np.vstack([store.shard(n) for n in numbers])
    rows = [row for start, stop in intervals for row in range(start, stop)]
    rng = np.random.default_rng(1)
    W, U = rng.standard_normal((columns, COLUMNS)), rng.standard_normal((len(rows), columns))
    read = stack.load(intervals)
    assert read.bytes >= len(rows) * COLUMNS * 8 or not rows
    out, sums = np.empty((len(rows), columns)), np.full((COLUMNS, columns), np.nan)
    stack.multiply(W, intervals, out)
    stack.multiply_transposed(U, intervals, sums)
    np.testing.assert_allclose(out, whole[rows] @ W.T, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(sums, whole[rows].T @ U, rtol=1e-13, atol=1e-13)
    assert stack.count == 300
    assert stack.mended() == Mended()
    assert [path.name for path in stack.paths] == [f"shard-000{n}.npy" for n in numbers]


def test_a_machine_names_all_of_its_files(store):
    machine = Machine(1, Stack([store.open_shard(n) for n in (1, 4)]), COLUMNS, "float64")
    assert [Path(file).name for file in machine.shard_files] == ["shard-0001.npy", "shard-0004.npy"]
    assert machine.measure_rate() > 0


class Told(Shard):
    """Tells what it is given."""

    path, count = Path(), 10

    def __init__(self, *mended, loaded=None, changed=False):
        self.told, self.loaded, self.has_changed = list(mended), loaded, changed
        self.asked = 0

    def multiply(self, W, intervals, out):
        raise NotImplementedError

    def multiply_transposed(self, U, intervals, out):
        raise NotImplementedError

    def load(self, intervals):
        return self.loaded or Loaded()

    def changed(self):
        self.asked += 1
        return self.has_changed

    def mended(self):
        return self.told.pop(0) if self.told else Mended()


def test_what_was_mended_is_told_one_shard_after_the_other():
    first = Told(Mended(1, 9, 9, 0.25), Mended(error_bound=0.25), Mended(1, 0, 0, 0.25))
    stack = Stack([first, Told(Mended(2, 3, 4, 0.5))])
    assert stack.mended() == Mended(1, 9, 9, 0.5)  # the error of both, at once
    assert stack.mended() == Mended(2, 13, 14, 0.5)
    assert stack.mended() == Mended(1, 0, 0, 0.5)
    assert stack.mended() == Mended(error_bound=0.5)


def test_what_was_read_is_added_up_and_one_change_is_enough():
    stack = Stack([Told(loaded=Loaded(1.0, 5)), Told(loaded=Loaded(2.0, 6, True), changed=True)])
    assert stack.load(((0, 10),)) == Loaded(1.0, 5)
    assert stack.load(((0, 20),)) == Loaded(3.0, 11, True)
    assert stack.changed()
    assert not Stack([Told(), Told()]).changed()


def test_each_is_asked_whether_it_has_changed():
    """One that may have, for a while, must not keep others from checking their rows again."""
    shards = [Told(changed=True), Told(), Told(changed=True)]
    assert Stack(shards).changed()
    assert [each.asked for each in shards] == [1, 1, 1]


def test_rows_that_are_damaged_are_named_and_can_be_mended(store, tmp_path):
    """In the second shard: by its own rows."""
    file = store.path / "shard-0003.npy"
    kept = file.read_bytes()
    try:
        file.write_bytes(kept[:-80] + bytes(80))
        stack = Stack([store.open_shard(n) for n in (2, 3)])
        with pytest.raises(DamagedStoreError, match=r"shard-0003.npy"):
            stack.load(((0, 200),))
        stack = Stack([DegradedShard(store, n) for n in (2, 3)])
        stack.load(((0, 200),))
        out = np.empty((200, 1))
        stack.multiply(np.ones((1, COLUMNS)), ((0, 200),), out)
        assert stack.mended().last >= 199
    finally:
        file.write_bytes(kept)
    np.testing.assert_allclose(
        out[:, 0], np.vstack([store.shard(n) for n in (2, 3)]).sum(axis=1), rtol=1e-11, atol=1e-11
    )
