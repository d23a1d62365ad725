"""Repair of damaged and wrong shards, and addition of machines."""

import os
import re
import shutil
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi import encode
from cec_mpi.core.accuracy.scaling import ZERO_ROW
from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.store import add_machine, decode, open_store, repair, verify
from cec_mpi.store.files.durable import locked
from cec_mpi.store.format.scaling import read_scaling
from cec_mpi.store.rebuilding import RebuildWork
from cec_mpi.store.work import LocalRunner
from helpers.stores import encode_in_small_blocks, flip_bit, publish_matching_checksums, read_files

MACHINES, RECOVERY, ROWS, COLUMNS = 6, 3, 301, 40
R = 101  # rows per shard


in_both_dtypes = pytest.mark.parametrize("template", ["float32", "float64"], indirect=True)


@pytest.fixture(scope="module")
def template(request, tmp_path_factory):
    """A store and its X, of float32 or of the dtypes of `in_both_dtypes`."""
    directory, dtype = tmp_path_factory.mktemp("template"), getattr(request, "param", "float32")
    X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(dtype)
    encode_in_small_blocks(directory, X, MACHINES, RECOVERY)
    return directory


@pytest.fixture
def path(template, tmp_path):
    return shutil.copytree(template / "store", tmp_path / "store")


@pytest.fixture
def X(template):
    return np.load(template / "X.npy")


def shard_name(machine):
    return f"shard-{machine:04d}.npy"


def overwrite(path, machine, row, value=77.0):
    """Overwrite an entry of a shard."""
    shard = np.load(path / shard_name(machine), mmap_mode="r+")
    shard[row, 3] = value
    shard.flush()


def forge(path, machine, row, value=77.0):
    """Overwrite an entry of a shard, and update all checksums."""
    overwrite(path, machine, row, value)
    publish_matching_checksums(path, machine)


def check_decodes(path, X):
    """Check that the error of a decoded X is within its bound, and that the bound is small."""
    out = path.parent / "decoded.npy"
    out.unlink(missing_ok=True)
    bound = decode(path, out)
    decoded = np.load(out)
    assert decoded.dtype == X.dtype
    assert decoded.shape == X.shape
    assert np.abs(decoded - X).max() <= bound * np.abs(X).max()
    assert bound < 1000 * np.finfo(X.dtype).eps


# --- rebuilding ---------------------------------------------------------------------------


def test_repair_does_not_change_a_good_store(path):
    before = read_files(path)
    result = repair(path)
    assert (result.rebuilt, result.restored, result.unresolved, result.faulty) == ({}, [], [], ())
    assert read_files(path) == before


LOST = list(combinations(range(1, MACHINES + 1), MACHINES - RECOVERY))[::4]


@in_both_dtypes
@pytest.mark.parametrize("lost", LOST)
def test_any_l_shards_restore_the_other_shards_and_x(path, X, lost):
    for machine in lost:
        (path / shard_name(machine)).unlink()
    result = repair(path)
    assert result.rebuilt == dict.fromkeys(lost, f"rows 0..{R - 1}")
    assert verify(path).damaged == []
    check_decodes(path, X)
    parts = np.zeros((RECOVERY, R, COLUMNS))
    parts.reshape(-1, COLUMNS)[:ROWS] = X
    store = open_store(path)
    exponents = read_scaling(path, store.manifest).exponents
    parts /= 2.0 ** np.where(exponents == ZERO_ROW, 0, exponents)[..., np.newaxis]
    for machine in range(1, MACHINES + 1):
        marks = store.manifest.shards[machine - 1].rebuilt
        assert [(mark.start, mark.stop) for mark in marks] == ([(0, R)] if machine in lost else [])
        if marks:
            exact = np.tensordot(store.manifest.code.generator[machine - 1], parts, 1)
            error = np.abs(store.shard(machine) - exact).max()
            assert error <= marks[0].error_bound * np.abs(parts).max()
            assert marks[0].error_bound <= result.error_bound


DAMAGES = ("header", "flip", "cut", "grow", "delete")


@settings(max_examples=30)
@given(
    kinds=st.dictionaries(st.integers(1, MACHINES), st.sampled_from(DAMAGES), min_size=1),
    position=st.integers(128, 128 + R * 4 * COLUMNS - 1),
)
def test_any_damage_is_found_and_only_damaged_blocks_are_rebuilt(
    template, tmp_path_factory, kinds, position
):
    path = shutil.copytree(template / "store", tmp_path_factory.mktemp("any") / "store")
    before = read_files(path)
    for machine, kind in kinds.items():
        file = path / shard_name(machine)
        if kind == "delete":
            file.unlink()
        elif kind in ("cut", "grow"):
            os.truncate(file, position if kind == "cut" else len(before[file.name]) + position)
        else:
            flip_bit(file, position if kind == "flip" else position % 128)
    condition, after_damage = verify(path), read_files(path)
    assert set(condition.damaged) == kinds.keys()
    if (condition.good.sum(axis=0) < RECOVERY).any():
        with pytest.raises(DamagedStoreError, match=r"fewer than 3 of 6 shards are good at rows"):
            repair(path)
        assert read_files(path) == after_damage
        return
    result = repair(path)
    assert verify(path).damaged == []
    row, block_rows = (position - 128) // (4 * COLUMNS), open_store(path).manifest.grid.block_rows
    for machine in range(1, MACHINES + 1):
        data, first = (path / shard_name(machine)).read_bytes(), R
        if kinds.get(machine) in ("flip", "cut"):
            first = int(result.rebuilt[machine].split()[1].partition("..")[0])
            assert first <= row < first + block_rows
        elif kinds.get(machine) == "delete":
            first = 0
        end = 128 + 4 * COLUMNS * first
        assert data[:end] == before[shard_name(machine)][:end]
    check_decodes(path, np.load(template / "X.npy"))
    shutil.rmtree(path.parent)


def test_lost_rows_are_named_and_no_file_is_written(path, tmp_path):
    for machine in (1, 2, 4, 6):
        overwrite(path, machine, 50)
    (path / shard_name(1)).unlink()
    before = read_files(path)
    message = r"fewer than 3 of 6 shards are good at rows \d+\.\.\d+ of each of the 3 parts of X"
    with pytest.raises(DamagedStoreError, match=message) as error:
        repair(path)
    assert error.value.exit_code == 5
    assert "row 101 p + k" in str(error.value)
    assert read_files(path) == before
    with pytest.raises(DamagedStoreError, match=message):
        decode(path, tmp_path / "X.npy")
    with pytest.raises(DamagedStoreError, match=message):
        add_machine(path)
    assert read_files(path) == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["store"]


def test_rows_that_are_lost_during_a_repair_are_named(path):
    class InterferingRunner(LocalRunner):
        def run(self, work):
            if isinstance(work, RebuildWork):
                overwrite(path, 4, 0)
            return super().run(work)

    for machine in (1, 2, 3):
        (path / shard_name(machine)).unlink()
    with pytest.raises(DamagedStoreError, match=r"changed while they were read, at rows 0\.\."):
        repair(path, runner=InterferingRunner())


def test_repair_can_be_limited_to_one_machine(path):
    (path / shard_name(2)).unlink()
    (path / shard_name(5)).unlink()
    result = repair(path, 5)
    assert list(result.rebuilt) == [5]
    assert result.still_damaged == [2]
    assert verify(path).damaged == [2]
    with pytest.raises(InputError, match="machine 7"):
        repair(path, 7)


def test_error_bounds_grow_with_each_repair(path, X):
    for lost in ((1, 2, 3), (4, 5, 6), (1, 3, 5)):
        for machine in lost:
            (path / shard_name(machine)).unlink()
        repair(path)
    check_decodes(path, X)
    bounds = [shard.rebuilt[0].error_bound for shard in open_store(path).manifest.shards]
    assert min(bounds[n - 1] for n in (1, 3, 5)) > bounds[1]


@pytest.mark.parametrize("interrupted_at", [0, 1, 2, 3])
def test_swapped_files_get_their_names_back_even_after_a_kill(path, monkeypatch, interrupted_at):
    before = read_files(path)
    for n, other in enumerate((2, 3, 1, 4, 6, 5), start=1):
        (path / shard_name(n)).rename(path / f"aside-{other}")
    for n in range(1, MACHINES + 1):
        (path / f"aside-{n}").rename(path / shard_name(n))
    rename, count = type(path).rename, 0

    def interrupted_rename(self, target):
        nonlocal count
        count += 1
        if count == interrupted_at:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(type(path), "rename", interrupted_rename)
    if interrupted_at:
        with pytest.raises(KeyboardInterrupt):
            repair(path)
    monkeypatch.undo()
    assert repair(path).rebuilt == {}
    after = read_files(path)
    after.pop(".lock", None)
    assert after == before


def test_a_copy_under_another_name_replaces_a_damaged_shard(path, X):
    data = (path / shard_name(2)).read_bytes()
    shutil.copy(path / shard_name(2), path / shard_name(4))
    overwrite(path, 2, 7)
    repair(path)
    assert (path / shard_name(2)).read_bytes() == data
    check_decodes(path, X)


# --- files other than shards --------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["manifest.json", "manifest.copy.json", "checksums-1.npy", "checksums-1.copy.npy"]
)
@pytest.mark.parametrize("change", ["lose", "alter"])
def test_other_damaged_files_are_named_and_restored(path, name, change):
    before = read_files(path)
    if change == "lose":
        (path / name).unlink()
    else:
        flip_bit(path / name, len(before[name]) // 2)
    if name != "manifest.json":
        assert list(verify(path).other_problems) == [name]
        assert open_store(path).shard(2).shape == (R, COLUMNS)
    result = repair(path)
    assert result.rebuilt == {}
    assert result.restored == [name]
    assert read_files(path) == before
    condition = verify(path)
    assert (condition.damaged, condition.other_problems) == ([], {})


def test_repair_rebuilds_missing_checksums(path, X):
    overwrite(path, 3, 20)
    (path / "checksums-1.npy").unlink()
    (path / "checksums-1.copy.npy").unlink()
    with pytest.raises(DamagedStoreError, match="cec-mpi repair"):
        add_machine(path)
    repair(path)
    assert verify(path).damaged == []
    check_decodes(path, X)


def test_the_manifest_of_another_store_is_not_a_copy(template, path, tmp_path):
    np.save(tmp_path / "other.npy", np.ones((4, 4)))
    encode(tmp_path / "other.npy", tmp_path / "other", 3, 2)
    shutil.copy(tmp_path / "other" / "manifest.json", path / "manifest.copy.json")
    assert verify(path).other_problems == {"manifest.copy.json": "outdated, or from another store"}
    assert repair(path).restored == ["manifest.copy.json"]


def test_decode_needs_the_checksums_of_only_l_shards(path, X):
    for name in ("checksums-1.npy", "checksums-1.copy.npy"):
        sums = np.load(path / name)
        sums[[1, 3, 4]] += np.uint64(1)
        np.save(path / name, sums)
    check_decodes(path, X)


# --- comparing ----------------------------------------------------------------------------


@in_both_dtypes
@pytest.mark.parametrize("value", [77.0, np.inf])  # the latter becomes the largest finite number
def test_a_wrong_shard_with_matching_checksums_is_named_and_rebuilt(path, X, value):
    forge(path, 4, 30, min(value, np.finfo(X.dtype).max))
    assert verify(path).damaged == []
    result = repair(path)
    assert result.faulty == (4,)
    assert list(result.rebuilt) == [4]
    check_decodes(path, X)
    assert repair(path).rebuilt == {}


@pytest.mark.parametrize("row", [0, 199])
def test_wrong_entries_at_both_ends_of_a_block_are_detected(tmp_path, row):
    X = np.random.default_rng(0).standard_normal((600, 512)).astype(np.float32)
    path = tmp_path / "store"
    assert encode(X, path, MACHINES, RECOVERY).block_bytes == 200 * 512 * 4
    shard = np.load(path / shard_name(2))
    forge(path, 2, row)
    result = repair(path)
    assert (result.faulty, result.rebuilt) == ((2,), {2: "rows 0..199"})
    np.testing.assert_allclose(np.load(path / shard_name(2)), shard, atol=1e-5)
    check_decodes(path, X)


def test_l_plus_one_shards_cannot_identify_the_wrong_one(X, tmp_path):
    path = tmp_path / "store"
    encode(X, path, RECOVERY + 1, RECOVERY)
    forge(path, 4, 30)
    result = repair(path)
    assert result.faulty == ()
    (problem,) = result.unresolved
    assert "shards 1, 2, 3, 4 disagree at rows" in problem
    start, stop = map(int, re.search(r"rows (\d+)\.\.(\d+)", problem).groups())
    assert start <= 30 <= stop
    for operation in (add_machine, lambda store: decode(store, path.parent / "X.npy")):
        with pytest.raises(DamagedStoreError, match="shards 1, 2, 3, 4 disagree at rows"):
            operation(path)
    result = repair(path, 4)
    assert 4 in result.rebuilt
    assert repair(path).unresolved == []
    assert verify(path).damaged == []
    check_decodes(path, X)


def test_naming_one_of_two_wrong_shards_rebuilds_nothing(X, tmp_path):
    """The named shard would be computed from the other wrong one."""
    path = tmp_path / "store"
    encode(X, path, RECOVERY + 2, RECOVERY)
    for machine in (3, 4):
        forge(path, machine, 30, 70.0 + machine)
    before = {n: (path / shard_name(n)).read_bytes() for n in range(1, RECOVERY + 3)}
    assert repair(path).unresolved
    result = repair(path, 3)
    assert "shards 1, 2, 4, 5 disagree" in result.unresolved[0]
    assert {n: (path / shard_name(n)).read_bytes() for n in before} == before
    assert repair(path).unresolved


def test_shards_are_compared_only_if_no_block_is_damaged(path, X):
    forge(path, 4, 30)
    overwrite(path, 2, 90)
    result = repair(path)
    assert (list(result.rebuilt), result.faulty) == ([2], ())
    assert repair(path).faulty == (4,)
    check_decodes(path, X)


def test_decode_excludes_a_wrong_shard(path, X):
    forge(path, 2, 30)
    with pytest.warns(UserWarning, match=r"shard 2 is wrong at rows \d+.*was left out"):
        check_decodes(path, X)
    with pytest.warns(UserWarning, match="shard 2 is wrong"):
        add_machine(path)


# --- added machines -----------------------------------------------------------------------


@in_both_dtypes
def test_an_added_machine_can_replace_any_other(path, X):
    store = open_store(path)
    before = read_files(path)
    manifest = add_machine(path)
    assert manifest.code.machines == MACHINES + 1
    assert open_store(path).manifest.shards == manifest.shards
    assert manifest.shards[-1].rebuilt[0].stop == R
    assert {name: data for name, data in read_files(path).items() if name in before} == before | {
        name: read_files(path)[name] for name in ("manifest.json", "manifest.copy.json")
    }
    assert store.open_shard(2).load([(0, R)]).bytes > 0  # opened before the machine was added
    for machine in (1, 2, 3, 4):
        (path / shard_name(machine)).unlink()
    check_decodes(path, X)
    repair(path)
    check_decodes(path, X)


# --- concurrent and read-only access ------------------------------------------------------


@pytest.mark.parametrize("change", [repair, add_machine])
def test_a_second_writer_is_refused(path, change):
    with (
        locked(path, "this one"),
        pytest.raises(InputError, match="is being written by another process"),
    ):
        change(path)
    change(path)


def test_a_store_can_be_read_only(path, tmp_path):
    for file in path.iterdir():
        file.chmod(0o444)
    path.chmod(0o555)
    try:
        assert verify(path).damaged == []
        decode(path, tmp_path / "X.npy")
        if os.geteuid():
            with pytest.raises(InputError, match="cannot be written"):
                repair(path)
    finally:
        path.chmod(0o755)
