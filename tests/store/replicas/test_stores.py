"""Replicated stores of a sparse X: products, damage and repair."""

import json
import os
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi import encode, open_operator
from cec_mpi.errors import DamagedStoreError, InputError, MachineError
from cec_mpi.store import add_machine, decode, open_store, repair, verify
from cec_mpi.store.format.scaling import read_scaling
from cec_mpi.store.manifest_files import content_checksum
from helpers.recording import MemoryRecorder
from helpers.sparse import random_sparse
from helpers.stores import flip_bit

MACHINES, COPIES = 4, 2


def matrix_with_empty_rows(dtype):
    X = random_sparse(120, 23).toarray()
    X[20:60] = 0
    X[77] = np.arange(23) - 11.5
    return sp.csr_array(X.astype(dtype))


X = matrix_with_empty_rows(np.float64)


@pytest.fixture(scope="module", params=["float64", "float32"])
def template(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "S"
    matrix = matrix_with_empty_rows(request.param)
    encode(matrix, path, MACHINES, copies=COPIES)
    return matrix, path


@pytest.fixture(scope="module")
def float64_template(tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "S"
    encode(X, path, MACHINES, copies=COPIES)
    return path


@pytest.fixture
def store(float64_template, tmp_path):
    return shutil.copytree(float64_template, tmp_path / "S")


@pytest.mark.parametrize("holding", ["mmap", "ram"])
@pytest.mark.parametrize("arithmetic", ["float64", "float32"])
def test_machines_multiply_any_of_their_rows(template, arithmetic, holding):
    matrix, path = template
    store = open_store(path)
    parts = store.manifest.rows_of_machine(2)
    rng = np.random.default_rng(0)
    for intervals in (parts, parts[::2], [(parts[0][0] + 1, parts[0][1] - 1), *parts[2:]]):
        for columns in (1, 3):
            shard = store.open_shard(2, holding)
            shard.load(intervals)
            rows = np.concatenate([matrix.toarray()[start:stop] for start, stop in intervals])
            W = rng.standard_normal((columns, 23)).astype(arithmetic)
            U = rng.standard_normal((len(rows), columns)).astype(arithmetic)
            forward, adjoint = np.empty((len(rows), columns), arithmetic), np.empty((23, columns))
            shard.multiply(W, intervals, forward)
            shard.multiply_transposed(U, intervals, adjoint)
            tolerance = 1e-4 if "float32" in (arithmetic, matrix.dtype.name) else 1e-12
            np.testing.assert_allclose(forward, rows @ W.T, rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(adjoint, rows.T @ U, rtol=tolerance, atol=tolerance)


@given(scales=st.lists(st.integers(-1074, 1023), min_size=1, max_size=9))
def test_stored_column_maxima_are_bounds_within_a_factor_of_two(scales, tmp_path_factory):
    """Maxima below the largest one times 2^-253 have a larger bound."""
    values = np.ldexp(np.random.default_rng(len(scales)).uniform(1, 2, len(scales)), scales)
    path = tmp_path_factory.mktemp("maxima") / "S"
    encode(sp.csr_array(np.diag(values)), path, 2, copies=1)
    scaling = read_scaling(path, open_store(path).manifest)
    least = np.ldexp(1.0, max(scales) - 253)
    assert (scaling.column_maxima >= values).all()
    assert (scaling.column_maxima / 2 <= np.maximum(values, least)).all()


def test_rows_of_another_machine_are_refused(float64_template):
    store = open_store(float64_template)
    intervals = store.manifest.rows_of_machine(1)
    other_row = next(row for row in range(120) if not any(a <= row < b for a, b in intervals))
    with pytest.raises(MachineError, match="machine 1 does not hold part"):
        store.open_shard(1).load(((other_row, other_row + 1),))


def test_emulated_speeds_count_nonzeros(tmp_path):
    """A third of the rows costs as much as the other rows, most of which are zero."""
    matrix = np.zeros((120, 50))
    matrix[:60, :20] = 1
    encode(sp.csr_array(matrix), tmp_path / "S", 2, copies=2)
    recorder, emulated = MemoryRecorder(), {"emulate_speeds": (1, 1), "emulate_base": 2000.0}
    with open_operator(tmp_path / "S", speeds=(1, 1), recorder=recorder, **emulated) as operator:
        np.testing.assert_allclose(operator @ np.ones(50), matrix @ np.ones(50))
    assert 30 <= min(recorder.records[0].rows) <= 45  # without nonzeros in the cost, it would be 60
    assert min(recorder.records[0].compute_seconds) >= 0.9 * 60 / 2000


def test_speeds_are_measured_with_rows_of_the_machine(float64_template):
    with open_operator(float64_template, emulate_speeds=(1, 1, 2, 2)) as operator:
        np.testing.assert_allclose(operator @ np.ones(23), X @ np.ones(23))


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (3, 70_000)])
def test_small_and_narrow_matrices_are_stored_and_decoded(shape, tmp_path):
    matrix = sp.csr_array(([2.5], ([shape[0] - 1], [shape[1] - 1])), shape=shape)
    encode(matrix, tmp_path / "S", 3, copies=3)
    assert verify(tmp_path / "S").damaged == []
    decode(tmp_path / "S", tmp_path / "back.npz")
    decoded = sp.load_npz(tmp_path / "back.npz")
    assert decoded.shape == shape
    assert abs(decoded - matrix).max() == 0


def is_undamaged(path):
    """Return whether verify finds no problem."""
    condition = verify(path)
    return not condition.damaged and not condition.other_problems


FILES = ("shard-0001.csr", "shard-0003.csr", "checksums-1.npy", "cells.npy", "column-maxima.npy")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_damage_is_found_and_repaired(store, name, damage):
    file = store / name
    before = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "truncated":
        os.truncate(file, len(before) - 3)
    else:
        flip_bit(file, len(before) // 2)
    assert not is_undamaged(store)
    repair(store)
    assert is_undamaged(store)
    assert file.read_bytes() == before


def test_every_section_of_a_file_is_verified(store):
    layout = open_store(store).manifest.layout
    file = layout.file_layout(2)
    sections = zip(file.section_offsets, file.entry_counts, layout.itemsizes, strict=True)
    for offset, count, size in sections:
        for position in (offset, offset + count * size - 1):
            flip_bit(store / "shard-0002.csr", position)
            assert verify(store).damaged == [2]
            flip_bit(store / "shard-0002.csr", position)
    assert is_undamaged(store)


@pytest.mark.parametrize(
    ("section", "message"),
    [(1, "have column indices out of range"), (2, "row pointers")],
)
def test_unverified_indices_are_refused_before_they_crash_a_product(store, section, message):
    file = open_store(store).manifest.layout.file_layout(2)
    size = 4 * file.entry_counts[section]
    with (store / "shard-0002.csr").open("r+b") as shard:
        shard.seek(file.section_offsets[section])
        shard.write(b"\x7f" * size)
    with (
        open_operator(store, verify="never", availability={1, 2, 3}) as operator,
        pytest.raises(DamagedStoreError, match=message),
    ):
        operator @ np.ones(23)


def test_rows_without_a_good_copy_are_named(store, tmp_path):
    layout = open_store(store).manifest.layout
    for machine in layout.holders[0]:
        (store / f"shard-{machine:04d}.csr").unlink()
    with pytest.raises(DamagedStoreError, match=r"cannot be repaired: rows 0\.\.\d+") as error:
        repair(store)
    assert "no machine has a good copy" in str(error.value)
    with pytest.raises(DamagedStoreError, match="rows 0"):
        decode(store, tmp_path / "back.npz")
    assert not (tmp_path / "back.npz").exists()


def test_decode_uses_any_good_copy(store, tmp_path):
    (store / "shard-0002.csr").unlink()
    decode(store, tmp_path / "back.npz")
    assert abs(sp.load_npz(tmp_path / "back.npz") - X).max() == 0
    with pytest.raises(InputError, match="delimiter is only for text tables"):
        decode(store, tmp_path / "again.npz", delimiter="tab")
    with pytest.raises(InputError, match=r"expected \.npz"):
        decode(store, tmp_path / "back.npy")


def test_an_added_machine_holds_rows(store):
    manifest = add_machine(store)
    assert len(manifest.shards) == MACHINES + 1
    assert is_undamaged(store)
    intervals = manifest.rows_of_machine(MACHINES + 1)
    expected = np.concatenate([X.toarray()[start:stop] for start, stop in intervals])
    np.testing.assert_array_equal(open_store(store).shard(MACHINES + 1).toarray(), expected)


def test_a_shard_has_the_rows_of_its_machine(template):
    matrix, path = template
    store = open_store(path)
    for machine in range(1, MACHINES + 1):
        shard = store.shard(machine)
        rows = [k for a, b in store.manifest.rows_of_machine(machine) for k in range(a, b)]
        assert shard.dtype == matrix.dtype
        np.testing.assert_array_equal(shard.toarray(), matrix.toarray()[rows])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [0, 2**63]}, "do not fit in int64"),
        ({"nonzeros": [0]}, "and 1 of nonzeros"),
        ({"rows": [0, 120], "nonzeros": [0, -1], "holders": [[1]]}, "not ascending from 0"),
        ({"rows": [0, 120], "nonzeros": [0, 9], "holders": [[2, 1]]}, "holders of a part are"),
        ({"rows": [0, 120], "nonzeros": [0, 9], "holders": [[5]]}, "expected 1 to 4"),
        ({"cell_count": 121}, "121 cells, expected"),
    ],
    ids=str,
)
def test_an_inconsistent_manifest_is_refused(store, changes, message):
    content = json.loads((store / "manifest.json").read_text())
    for key, value in changes.items():
        (content if key == "cell_count" else content["replicas"])[key] = value
    content["sha256"] = content_checksum(content)
    (store / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(DamagedStoreError, match=message):
        open_store(store)
