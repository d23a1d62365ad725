"""Shards that are damaged, missing or cut off: a run reads what is left of them."""

import os
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi import encode
from cec_mpi.core.step.product import Product
from cec_mpi.errors import DamagedStoreError
from cec_mpi.machine.faults import Faults
from cec_mpi.machine.machine import Machine
from cec_mpi.store import open_store, repair
from cec_mpi.store.degraded import DegradedShard
from cec_mpi.store.shard import Mended
from cec_mpi.store.staging import stage_shard

MACHINES, RECOVERY, ROWS, COLUMNS = 5, 2, 300, 20
PARTS = ROWS // RECOVERY


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with many blocks: of some rows each, or where rows are long of pieces of one."""
    directory = tmp_path_factory.mktemp("degraded")
    for name, columns in (("flat", COLUMNS), ("wide", 500)):
        rows = np.random.default_rng(1).standard_normal((ROWS, columns))
        np.save(directory / "X.npy", rows)
        encode(directory / "X.npy", directory / name, MACHINES, RECOVERY, block_bytes=1600)
    return directory


@pytest.fixture
def path(made, tmp_path):
    return shutil.copytree(made / "flat", tmp_path / "store")


def name_of(machine):
    return f"shard-{machine:04d}.npy"


def alter(path, machine, row, store=None):
    """One bit of the first number of a row."""
    manifest = open_store(store or path.parent).manifest if path.is_file() else None
    file = path if path.is_file() else path / name_of(machine)
    manifest = manifest or open_store(path).manifest
    with file.open("r+b") as opened:
        opened.seek(manifest.place(row * manifest.columns))
        byte = opened.read(1)
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte[0] ^ 1]))


def rows_of(shard, start=0, stop=PARTS):
    shard.load([(start, stop)])
    return np.concatenate(list(shard.pieces(start, stop)))


def missing(file):
    file.unlink()


def cut_off(file):
    os.truncate(file, file.stat().st_size // 2)


def longer(file):
    with file.open("ab") as opened:
        opened.write(b"more")


def empty(file):
    file.write_bytes(b"")


def other_header(file):
    with file.open("r+b") as opened:
        opened.write(b"no numpy")


@pytest.mark.parametrize("holding", ["mmap", "ram"])
@pytest.mark.parametrize("name", ["flat", "wide"])
def test_damaged_rows_are_computed_from_others_and_the_rest_is_the_file(
    made, tmp_path, name, holding
):
    path = shutil.copytree(made / name, tmp_path / "store")
    whole = open_store(path).shard(3).copy()
    for row in (0, 77, 149):
        alter(path, 3, row)
    shard = DegradedShard(open_store(path), 3, holding)
    found = rows_of(shard)
    height = open_store(path).manifest.grid.block_rows
    touched = {row // height for row in (0, 77, 149)}
    same = [row for row in range(PARTS) if row // height not in touched]
    assert np.array_equal(found[same], whole[same])
    np.testing.assert_allclose(found, whole, atol=1e-13)
    told = shard.mended()
    assert (told.rows, told.first, told.last) == (height * 3, 0, PARTS - 1)
    bound = told.error_bound
    assert 0 < bound < 1e-13
    assert np.abs(found - whole).max() <= bound * 6  # no entry of X is larger
    assert shard.mended() == Mended(error_bound=bound)
    assert np.array_equal(rows_of(shard, 60, 90), found[60:90])
    assert shard.mended() == Mended(error_bound=bound)


@given(
    damaged=st.sets(st.integers(0, PARTS - 1), max_size=5),
    cuts=st.lists(st.sets(st.integers(0, PARTS), min_size=2, max_size=2), min_size=1, max_size=4),
)
def test_any_rows_in_any_order_are_those_of_the_shard(made, tmp_path_factory, damaged, cuts):
    path = shutil.copytree(made / "flat", tmp_path_factory.mktemp("any") / "store")
    whole = open_store(path).shard(2).copy()
    for row in damaged:
        alter(path, 2, row)
    shard = DegradedShard(open_store(path), 2)
    for start, stop in map(sorted, cuts):
        np.testing.assert_allclose(rows_of(shard, start, stop), whole[start:stop], atol=1e-13)
    height = open_store(path).manifest.grid.block_rows
    read = {row // height for cut in cuts for row in range(*sorted(cut))}
    assert shard.mended().rows == height * len({row // height for row in damaged} & read)


@pytest.mark.parametrize("fault", [missing, cut_off, longer, empty, other_header])
@pytest.mark.parametrize("holding", ["mmap", "ram"])
def test_a_file_that_cannot_be_opened_as_a_shard(path, fault, holding):
    whole = open_store(path).shard(3).copy()
    fault(path / name_of(3))
    shard = DegradedShard(open_store(path), 3, holding)
    np.testing.assert_allclose(rows_of(shard), whole, atol=1e-13)
    good = {cut_off: 70, longer: PARTS, other_header: PARTS}.get(fault, 0)
    assert np.array_equal(rows_of(shard)[:good], whole[:good])
    rebuilt = shard.mended().rows
    assert rebuilt == {missing: PARTS, empty: PARTS, cut_off: 80}.get(fault, 0)


def test_a_file_that_is_cut_off_while_it_is_used(path):
    whole = open_store(path).shard(3).copy()
    shard = DegradedShard(open_store(path), 3)
    rows_of(shard, 0, 100)
    cut_off(path / name_of(3))
    assert shard.changed()
    np.testing.assert_allclose(rows_of(shard), whole, atol=1e-13)
    assert not shard.changed()


def test_rows_that_are_overwritten_after_their_check_are_replaced(path):
    whole = open_store(path).shard(3).copy()
    shard = DegradedShard(open_store(path), 3)
    assert np.array_equal(rows_of(shard), whole)
    alter(path, 3, 42)
    assert shard.changed()
    assert shard.load([(0, PARTS)]).replaced
    np.testing.assert_allclose(rows_of(shard), whole, atol=1e-13)
    assert shard.mended().rows == open_store(path).manifest.grid.block_rows


def test_a_damaged_copy_is_read_from_the_store_itself(path, tmp_path):
    store = open_store(path)
    stage_shard(path, store.manifest, 3, str(tmp_path / "copies"))
    copy = tmp_path / "copies" / name_of(3)
    alter(copy, 3, 42, path)
    shard = DegradedShard(store, 3, copy=copy)
    assert np.array_equal(rows_of(shard), store.shard(3))
    assert shard.mended() == Mended()


def test_others_that_are_damaged_too_are_passed_over(path):
    whole = open_store(path).shard(3).copy()
    alter(path, 3, 42)
    alter(path, 1, 42)
    alter(path, 4, 42)
    shard = DegradedShard(open_store(path), 3)
    np.testing.assert_allclose(rows_of(shard), whole, atol=1e-13)
    alter(path, 5, 42)
    shard = DegradedShard(open_store(path), 3)
    with pytest.raises(
        DamagedStoreError, match=r"shard-0003.npy: rows 40..49 do not match .* cannot be "
    ):
        rows_of(shard)
    with pytest.raises(
        DamagedStoreError, match=r"fewer than 2 of 5 shards are good at rows 40..49"
    ):
        rows_of(shard)
    assert np.array_equal(rows_of(shard, 50, PARTS), whole[50:])


def test_where_the_others_are_not_there_the_shard_does_not_open(path):
    for machine in (1, 2, 3, 4):
        missing(path / name_of(machine))
    with pytest.raises(
        DamagedStoreError, match=r"shard-0003.npy: missing, .* only 1 shards can be read here"
    ):
        DegradedShard(open_store(path), 3)


def test_rows_of_others_that_were_rebuilt_before_are_less_exact(path):
    alter(path, 3, 42)
    first = DegradedShard(open_store(path), 3)
    rows_of(first)
    alter(path, 3, 42)  # and it is whole again
    missing(path / name_of(2))
    missing(path / name_of(4))
    missing(path / name_of(5))
    repair(path)
    missing(path / name_of(1))
    alter(path, 3, 42)
    second = DegradedShard(open_store(path), 3)
    rows_of(second)
    assert second.mended().error_bound > first.mended().error_bound > 0
    assert (path / name_of(1)).exists() is False  # nothing is written


def test_a_disk_that_fails_somewhere(path, monkeypatch):
    whole = open_store(path).shard(3).copy()
    place, size = open_store(path).manifest.place(40 * COLUMNS), 10 * COLUMNS * 8
    bad = (path / name_of(3)).stat().st_ino
    real = os.preadv

    def failing(descriptor, buffers, offset):
        if os.fstat(descriptor).st_ino == bad and place <= offset < place + size:
            raise OSError(5, "Input/output error")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(DamagedStoreError, match=r"rows 40..49 are unreadable \(Input/output error"):
        rows_of(open_store(path).open_shard(3))
    shard = DegradedShard(open_store(path), 3)
    np.testing.assert_allclose(rows_of(shard), whole, atol=1e-13)
    assert shard.mended().rows == 10


@pytest.mark.parametrize(
    "product", [Product(), Product(columns=3), Product(True), Product(True, 3)]
)
def test_what_was_computed_with_rows_that_were_overwritten_is_computed_again(path, product):
    whole = open_store(path).shard(3).copy()
    machine = Machine(3, DegradedShard(open_store(path), 3), COLUMNS, "float64")
    machine.assign(((5, 60), (70, 150)))
    machine.prepare(product)
    machine.load()

    class Overwriting(Faults):
        def __bool__(self):
            return True

        def before(self, machine, step):
            alter(path, 3, 42)
            alter(path, 3, 99)

    machine.faults = Overwriting()
    rows = np.concatenate((whole[5:60], whole[70:150]))
    shape = (len(rows), product.columns) if product.adjoint else (product.columns, COLUMNS)
    given_ = np.random.default_rng(3).standard_normal(shape)
    machine.compute(product, given_, 0)
    expected = rows.T @ given_ if product.adjoint else rows @ given_.T
    np.testing.assert_allclose(machine.values, expected.ravel(), atol=1e-11)
    assert machine.mended().rows == 20


@pytest.mark.parametrize(
    "product", [Product(), Product(columns=3), Product(True), Product(True, 3)]
)
def test_rebuilt_rows_of_float32_are_multiplied_in_float64_as_the_others(tmp_path, product):
    X = np.random.default_rng(1).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    encode(X, tmp_path / "store", MACHINES, RECOVERY)
    alter(tmp_path / "store", 3, 42)
    machine = Machine(3, DegradedShard(open_store(tmp_path / "store"), 3), COLUMNS, "float64")
    machine.assign(((5, 60), (70, 150)))
    machine.prepare(product)
    machine.load()
    assert machine.mended().rows > 0
    rows = rows_of(DegradedShard(open_store(tmp_path / "store"), 3)).astype(np.float64)
    rows = np.concatenate((rows[5:60], rows[70:150]))
    shape = (len(rows), product.columns) if product.adjoint else (product.columns, COLUMNS)
    given_ = np.random.default_rng(3).standard_normal(shape)
    machine.compute(product, given_, 0)
    expected = rows.T @ given_ if product.adjoint else rows @ given_.T
    np.testing.assert_allclose(machine.values, expected.ravel(), atol=1e-13)
