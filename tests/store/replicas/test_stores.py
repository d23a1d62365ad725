"""Stores of a sparse X: products of what machines hold, and damage found and mended."""

import os
import random
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi import encode, open_operator
from cec_mpi.errors import CecError, DamagedStoreError, InputError, MachineError
from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.store import add_machine, decode, open_store, repair, verify
from cec_mpi.store.format.scaling import read_scaling
from helpers.recording import Kept
from helpers.sparse import sparse

MACHINES, COPIES = 4, 2


def with_empty_rows(dtype):
    X = sparse(120, 23).toarray()
    X[20:60] = 0
    X[77] = np.arange(23) - 11.5
    return sp.csr_array(X.astype(dtype))


X = with_empty_rows(np.float64)


@pytest.fixture(scope="module", params=["float64", "float32"])
def made(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "S"
    given = with_empty_rows(request.param)
    encode(given, path, MACHINES, copies=COPIES)
    return given, path


@pytest.fixture(scope="module")
def double(tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "S"
    encode(X, path, MACHINES, copies=COPIES)
    return path


@pytest.fixture
def store(double, tmp_path):
    return shutil.copytree(double, tmp_path / "S")


def held_by(layout, machine):
    """Intervals of the parts that a machine holds."""
    return [
        (int(layout.bounds[part]), int(layout.bounds[part + 1]))
        for part, machines in enumerate(layout.holders)
        if machine in machines
    ]


@st.composite
def intervals_of(draw, held):
    found = []
    for start, stop in held:
        if draw(st.booleans()):
            first = draw(st.integers(start, stop - 1))
            last = draw(st.integers(first + 1, stop))
            if found and found[-1][1] == first:
                found[-1] = found[-1][0], last
            else:
                found.append((first, last))
    return tuple(found)


@given(
    arithmetic=st.sampled_from(["float64", "float32"]),
    holding=st.sampled_from(["mmap", "ram"]),
    data=st.data(),
)
def test_products_of_any_rows_that_a_machine_holds(made, holding, arithmetic, data):
    given, path = made
    opened = open_store(path)
    machine = data.draw(st.integers(1, MACHINES))
    rows = data.draw(intervals_of(held_by(opened.manifest.layout, machine)))
    if not rows:
        return
    shard = opened.open_shard(machine, holding)
    shard.load(rows)
    count = sum(stop - start for start, stop in rows)
    some = np.concatenate([given.toarray()[start:stop] for start, stop in rows])
    rng, columns = np.random.default_rng(0), data.draw(st.sampled_from([1, 3]))
    W = rng.standard_normal((columns, 23)).astype(arithmetic)
    out = np.empty((count, columns), arithmetic)
    shard.multiply(W, rows, out)
    exact = "float32" not in (arithmetic, given.dtype.name)
    tolerance = 1e-12 if exact else 1e-4
    np.testing.assert_allclose(out, some @ W.T, rtol=tolerance, atol=tolerance)
    U = rng.standard_normal((count, columns)).astype(arithmetic)
    total = np.empty((23, columns))
    shard.multiply_transposed(U, rows, total)
    np.testing.assert_allclose(total, some.T @ U, rtol=tolerance, atol=tolerance)


@given(scales=st.lists(st.integers(-1074, 1023), min_size=1, max_size=9))
def test_sizes_of_columns_are_upper_bounds_up_to_twice_as_large(scales, tmp_path_factory):
    """Unless they are 2^253 times smaller than the largest one."""
    values = np.ldexp(np.random.default_rng(len(scales)).uniform(1, 2, len(scales)), scales)
    path = tmp_path_factory.mktemp("sizes") / "S"
    encode(sp.csr_array(np.diag(values)), path, 2, copies=1)
    found = read_scaling(path, open_store(path).manifest)
    least = np.ldexp(1.0, max(scales) - 253)
    assert (found.largest >= values).all()
    assert (found.largest / 2 <= np.maximum(values, least)).all()


def test_rows_that_a_machine_does_not_hold(double):
    opened = open_store(double)
    held = held_by(opened.manifest.layout, 1)
    free = next(row for row in range(120) if not any(a <= row < b for a, b in held))
    with pytest.raises(MachineError, match="machine 1 does not hold part"):
        opened.open_shard(1).load(((free, free + 1),))


def test_machines_are_slowed_down_by_nonzeros(tmp_path):
    """A third of the rows costs as much as the others, of which most have no nonzeros."""
    given = np.zeros((120, 50))
    given[:60, :20] = 1
    encode(sp.csr_array(given), tmp_path / "S", 2, copies=2)
    kept, emulated = Kept(), {"emulate_speeds": (1, 1), "emulate_base": 2000.0}
    with open_operator(tmp_path / "S", speeds=(1, 1), recorder=kept, **emulated) as operator:
        np.testing.assert_allclose(operator @ np.ones(50), given @ np.ones(50))
    assert 30 <= min(kept.records[0].rows) <= 45  # equal rows would be 60
    assert min(kept.records[0].seconds) >= 0.9 * 60 / 2000


def test_the_speed_of_machines_is_measured_with_rows_that_they_hold(double):
    with open_operator(double, emulate_speeds=(1, 1, 2, 2)) as operator:
        np.testing.assert_allclose(operator @ np.ones(23), X @ np.ones(23))


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (3, 70_000)])
def test_small_and_narrow_matrices(shape, tmp_path):
    given = sp.csr_array(([2.5], ([shape[0] - 1], [shape[1] - 1])), shape=shape)
    encode(given, tmp_path / "S", 3, copies=3)
    assert verify(tmp_path / "S").damaged == []
    decode(tmp_path / "S", tmp_path / "back.npz")
    back = sp.load_npz(tmp_path / "back.npz")
    assert back.shape == shape
    assert abs(back - given).max() == 0


def flip(path, position):
    np.memmap(path, np.uint8, "r+")[position] ^= 1


def is_whole(path):
    """All is as it was written."""
    condition = verify(path)
    return not condition.damaged and not condition.other_problems


FILES = ("shard-0001.csr", "shard-0003.csr", "checksums-1.npy", "cells.npy", "column-sizes.npy")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["flipped", "truncated", "missing"])
def test_damage_is_found_and_mended(store, name, how):
    file = store / name
    before = file.read_bytes()
    if how == "missing":
        file.unlink()
    elif how == "truncated":
        os.truncate(file, len(before) - 3)
    else:
        flip(file, random.Random(name).randrange(128, len(before)))
    if is_whole(store):  # the byte was in the padding between sections
        assert how == "flipped"
        assert name.startswith("shard")
        return
    repair(store)
    assert is_whole(store)
    assert file.read_bytes() == before


def test_every_number_of_a_file_is_checked(store):
    layout = open_store(store).manifest.layout
    file = layout.file(2)
    itemsizes = layout.itemsizes
    rng = random.Random(1)
    for begin, count, size in zip(file.begins, file.counts, itemsizes, strict=True):
        for place in [begin, begin + count * size - 1, rng.randrange(begin, begin + count * size)]:
            flip(store / "shard-0002.csr", place)
            assert verify(store).damaged == [2]
            flip(store / "shard-0002.csr", place)
    assert is_whole(store)


def test_swapped_files_are_rebuilt(tmp_path):
    store = tmp_path / "three-copies"
    encode(X, store, MACHINES, copies=3)
    (store / "shard-0001.csr").rename(tmp_path / "aside")
    (store / "shard-0004.csr").rename(store / "shard-0001.csr")
    (tmp_path / "aside").rename(store / "shard-0004.csr")
    assert verify(store).damaged == [1, 4]
    repair(store)
    assert is_whole(store)


def test_rows_whose_copies_are_all_gone_are_named(store, tmp_path):
    layout = open_store(store).manifest.layout
    for machine in layout.holders[0]:
        (store / f"shard-{machine:04d}.csr").unlink()
    with pytest.raises(DamagedStoreError, match=r"cannot be repaired: rows 0\.\.\d+") as caught:
        repair(store)
    assert "no machine has a good copy" in str(caught.value)
    with pytest.raises(DamagedStoreError, match="rows 0"):
        decode(store, tmp_path / "back.npz")
    assert not (tmp_path / "back.npz").exists()


def test_decode_takes_any_good_copy(store, tmp_path):
    (store / "shard-0002.csr").unlink()
    decode(store, tmp_path / "back.npz")
    assert abs(sp.load_npz(tmp_path / "back.npz") - X).max() == 0
    with pytest.raises(InputError, match="delimiter is only for text tables"):
        decode(store, tmp_path / "again.npz", delimiter="tab")
    with pytest.raises(InputError, match=r"expected \.npz"):
        decode(store, tmp_path / "back.npy")


def test_a_further_machine_has_its_share(store):
    grown = add_machine(store)
    assert len(grown.shards) == MACHINES + 1
    assert is_whole(store)
    held = held_by(grown.layout, MACHINES + 1)
    assert held
    shard = open_store(store).open_shard(MACHINES + 1)
    shard.load(held[:1])
    (start, stop) = held[0]
    out = np.empty((stop - start, 1))
    shard.multiply(np.ones((1, 23)), held[:1], out)
    np.testing.assert_allclose(out[:, 0], X.toarray()[start:stop].sum(axis=1), atol=1e-12)


def test_the_rows_of_a_shard_are_those_that_its_machine_holds(made):
    given, path = made
    opened = open_store(path)
    for machine in range(1, MACHINES + 1):
        shard = opened.shard(machine)
        rows = [k for a, b in held_by(opened.manifest.layout, machine) for k in range(a, b)]
        assert shard.dtype == given.dtype
        np.testing.assert_array_equal(shard.toarray(), given.toarray()[rows])
    with pytest.raises(InputError, match="machine 5: expected 1 to 4"):
        opened.shard(5)


def test_a_file_that_was_cut_between_steps_is_named(store):
    """Whether the rows of the next step are those of the last one or not."""
    opened = open_store(store)
    machine = Machine(1, opened.open_shard(1), 23, "float64")
    for rows in (held_by(opened.manifest.layout, 1)[:2], held_by(opened.manifest.layout, 1)):
        machine.assign(tuple(rows))
        if len(rows) > 2:
            os.truncate(store / "shard-0001.csr", 100)
            with pytest.raises(DamagedStoreError, match="100 bytes, expected"):
                machine.load()
        else:
            machine.load()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(store, make):
    name = store / "shard-0002.csr"
    name.unlink()
    make(name)
    assert verify(store).damaged == [2]
    with pytest.raises(CecError, match="shard-0002"):
        repair(store)
    with pytest.raises(DamagedStoreError, match="shard-0002"):
        open_store(store).open_shard(2)
