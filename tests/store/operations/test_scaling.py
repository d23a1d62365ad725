"""Scaling of rows by powers of two before they are encoded."""

import os
import shutil

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from msgspec import structs

import cec_mpi
from cec_mpi import encode
from cec_mpi.core.accuracy.scaling import ZERO_ROW, equilibrate
from cec_mpi.errors import DamagedStoreError, InputError, ScaleWarning
from cec_mpi.store import decode, open_store, repair, verify
from cec_mpi.store.format.scaling import read_scaling
from cec_mpi.store.manifest_files import manifest_text, read_manifest
from helpers.stores import InterruptedRunner, encode_blocks, read_files

RNG = np.random.default_rng(0)
FILES = (
    "row-exponents.npy",
    "row-exponents.copy.npy",
    "column-maxima.npy",
    "column-maxima.copy.npy",
)
EXTREMES = {
    "float32": [1e-45, 1e-40, 1.2e-38, 1e-6, 1.0, 1e20, 3e38, 3.4028234e38],
    "float64": [5e-324, 1e-310, 2.3e-308, 1e-6, 1.0, 1e200, 1e308, 1.7976931348623157e308],
}


def rows_of_all_sizes(dtype, rows=300, columns=20):
    sizes = 10.0 ** RNG.uniform(-6, 0, (rows, 1))
    return (RNG.standard_normal((rows, columns)) * sizes).astype(dtype)


def load_scaling(store):
    return read_scaling(store, open_store(store).manifest)


@pytest.fixture
def store(tmp_path):
    """A store of rows of all sizes."""
    encode(rows_of_all_sizes("float32"), tmp_path / "store", 5, 3)
    return tmp_path / "store"


# --- the numbers --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(data=st.data())
def test_equilibrated_rows_have_similar_sizes(dtype, data):
    shape = data.draw(st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 7, 40, 250])))
    finite = npst.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)
    rows = data.draw(npst.arrays(dtype, shape, elements=finite, fill=st.just(0)))
    out = np.empty_like(rows)
    exponents = equilibrate(rows, out, np.empty_like(rows))
    assert np.array_equal(np.ldexp(out, exponents[:, np.newaxis].astype(int)), rows)
    largest = np.abs(out).max(axis=1)
    assert (largest[np.abs(rows).max(axis=1) == 0] == 0).all()
    # A row is scaled less if its smallest entry is or would become subnormal.
    smallest = np.where(rows == 0, np.inf, np.abs(rows)).min(axis=1)
    is_scalable = np.abs(rows).max(axis=1) * float(np.finfo(dtype).tiny) * 4 < smallest
    assert ((largest >= 0.5) & (largest < 1) | ~is_scalable | (largest == 0)).all()
    assert (exponents[largest == 0] == ZERO_ROW).all()


# --- a store ------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [20, 1500])  # rows per block, blocks per row
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_rows_are_as_accurate_as_large_ones(tmp_path, dtype, columns):
    X = rows_of_all_sizes(dtype, 200, columns)
    encode_blocks(X, tmp_path / "store", 5, 3)
    scaling = load_scaling(tmp_path / "store")
    expected = np.frexp(np.abs(X).max(axis=1))[1]
    assert scaling.exponents.dtype == np.int16
    assert scaling.exponents.reshape(-1)[:200].tolist() == expected.tolist()
    # Rows of padding.
    assert (scaling.exponents.reshape(-1)[200:] == ZERO_ROW).all()
    scaled = np.ldexp(X.astype(np.float64), -expected[:, np.newaxis])
    np.testing.assert_array_equal(scaling.column_maxima, np.abs(scaled).max(axis=0))
    bound = decode(tmp_path / "store", tmp_path / "X.npy")
    error = np.abs(np.load(tmp_path / "X.npy") - X.astype(np.float64))
    assert (error <= bound * 2.0 ** expected[:, np.newaxis]).all()
    w, v = RNG.standard_normal((columns, 2)), RNG.standard_normal((200, 2))
    eps = np.finfo(dtype).eps
    with cec_mpi.open_operator(tmp_path / "store", None) as operator:
        for available in (1, 2, 3), (3, 4, 5), (1, 2, 4, 5):
            operator.available = available
            largest = np.abs(X).astype(float) @ np.abs(w)
            assert (np.abs(operator @ w - X.astype(float) @ w) <= 50 * eps * largest).all()
            largest = np.abs(X).T.astype(float) @ np.abs(v)
            assert (np.abs(operator.H @ v - X.T.astype(float) @ v) <= 50 * eps * largest).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_entries_are_decoded_exactly(tmp_path, dtype):
    """The first shards of a systematic code have the scaled rows."""
    sizes = np.array([*EXTREMES[dtype], 0.0], dtype)
    same, mixed = sizes[:, np.newaxis] * np.array([[1, -1, 0]], dtype), sizes[[0, 4, 5]]
    X = np.vstack([same, sizes[:3], sizes[:3], mixed])
    with pytest.warns(ScaleWarning, match="the entries of a row differ too much in magnitude"):
        encode(X, tmp_path / "store", 6, 3, systematic=True, scaling="rows")
    decode(tmp_path / "store", tmp_path / "X.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), X)
    (tmp_path / "store" / "shard-0001.npy").unlink()
    repair(tmp_path / "store")
    decode(tmp_path / "store", tmp_path / "again.npy")
    assert np.isfinite(np.load(tmp_path / "again.npy")).all()


def test_rounding_does_not_make_the_largest_number_infinite(tmp_path):
    X = np.full((30, 4), np.finfo(np.float32).max)
    encode(X, tmp_path / "store", 6, 3)
    bound = decode(tmp_path / "store", tmp_path / "X.npy")
    assert np.allclose(np.load(tmp_path / "X.npy"), X, rtol=2 * bound, atol=0)


def test_rows_are_scaled_only_if_requested_or_without_a_systematic_code(tmp_path):
    X = rows_of_all_sizes("float64")
    for name, options in ("none", {"scaling": "none"}), ("systematic", {"systematic": True}):
        manifest = encode(X, tmp_path / name, 5, 3, **options)
        assert manifest.row_exponents is None
        assert load_scaling(tmp_path / name).exponents is None
        assert not list((tmp_path / name).glob("row-exponents*"))
        np.testing.assert_array_equal(
            load_scaling(tmp_path / name).column_maxima, np.abs(X).max(axis=0)
        )
    assert np.array_equal(open_store(tmp_path / "systematic").shard(2), X[100:200])
    with pytest.warns(ScaleWarning, match=r"use scaling rows \(--scaling rows\)"):
        encode(rows_of_all_sizes("float32"), tmp_path / "narrow", 5, 3, scaling="none")
    with pytest.raises(InputError, match=r"scaling 'columns': expected rows or none"):
        encode(X, tmp_path / "other", 5, 3, scaling="columns")


class CountingArray(np.ndarray):
    """An array that counts how often each entry is read."""

    reads: np.ndarray

    def __getitem__(self, index):
        self.reads[index] += 1
        return np.asarray(self)[index]


@pytest.mark.parametrize(("columns", "reads"), [(20, 1), (1500, 2)])
def test_x_is_read_twice_only_if_rows_are_longer_than_a_block(tmp_path, columns, reads):
    X = rows_of_all_sizes("float32", 70, columns)
    counting = X.view(CountingArray)
    counting.reads = np.zeros(X.shape, int)
    encode_blocks(counting, tmp_path / "store", 5, 3)
    assert (counting.reads == reads).all()


@pytest.mark.parametrize(
    ("damaged", "rows", "columns", "pieces"),
    [
        ("", 900, 30, 3),  # bands of several blocks
        ("", 210, 1500, 72),  # rows of several blocks
        ("incomplete.exponents", 900, 30, 3),
        ("incomplete.maxima", 210, 1500, 72),
    ],
)
def test_a_resume_does_not_trust_the_journal(tmp_path, damaged, rows, columns, pieces):
    np.save(tmp_path / "X.npy", rows_of_all_sizes("float32", rows, columns))
    encode_blocks(tmp_path / "X.npy", tmp_path / "whole", 5, 3)
    for change in (lambda file: os.truncate(file, 40), overwrite) if damaged else (None,):
        with pytest.raises(KeyboardInterrupt):
            encode_blocks(
                tmp_path / "X.npy", tmp_path / "store", 5, 3, runner=InterruptedRunner(pieces)
            )
        if change:
            change(tmp_path / "store" / damaged)
        encode_blocks(tmp_path / "X.npy", tmp_path / "store", 5, 3, resume=True)
        resumed, expected = (
            read_files(tmp_path / name, "source.json") for name in ("store", "whole")
        )
        assert resumed == expected
        shutil.rmtree(tmp_path / "store")


def overwrite(file):
    with file.open("r+b") as stream:
        stream.write(b"\x11" * 24)


# --- damage -------------------------------------------------------------------------------


def truncate(file):
    os.truncate(file, 150)


def replace_by_another_store(file):
    other = file.parents[1] / "other"
    if not other.exists():
        encode(rows_of_all_sizes("float32"), other, 5, 3)
    shutil.copy(other / file.name, file)


def damage_header(file):
    data = file.read_bytes()
    file.write_bytes(b"\x93NUMPY\x01\x00v\x00{" + b"(" * 117 + data[128:])


DAMAGES = [truncate, replace_by_another_store, damage_header]


@pytest.mark.parametrize(
    ("name", "change"),
    [*((name, os.unlink) for name in FILES), *((FILES[0], change) for change in DAMAGES)],
)
def test_a_damaged_file_is_named_and_restored_from_its_copy(store, name, change):
    before, X = read_files(store), load_scaling(store)
    change(store / name)
    condition = verify(store)
    assert (condition.damaged, list(condition.other_problems)) == ([], [name])
    np.testing.assert_array_equal(load_scaling(store).exponents, X.exponents)
    np.testing.assert_array_equal(load_scaling(store).column_maxima, X.column_maxima)
    decode(store, store.parent / "X.npy")
    assert repair(store).restored == [name]
    assert read_files(store) == before


@pytest.mark.parametrize("kind", ["row-exponents", "column-maxima"])
def test_a_damaged_file_with_a_damaged_copy_is_an_error(store, kind):
    names = [f"{kind}.npy", f"{kind}.copy.npy"]
    (store / names[0]).unlink()
    overwrite(store / names[1])
    message = rf"{kind}\.npy and {kind}\.copy\.npy are missing or altered and cannot be restored"
    with pytest.raises(DamagedStoreError, match=message), cec_mpi.open_operator(store, None):
        pass
    if kind == "row-exponents":
        with pytest.raises(DamagedStoreError, match=message):
            decode(store, store.parent / "X.npy")
        assert not (store.parent / "X.npy").exists()
    assert list(verify(store).other_problems) == verify(store).lost == names
    (store / "shard-0002.npy").unlink()
    result = repair(store)
    assert (result.lost, result.restored, list(result.rebuilt)) == (names, [], [2])


def test_a_pipe_in_place_of_a_file_is_named_and_kept(store):
    (store / "row-exponents.npy").unlink()
    os.mkfifo(store / "row-exponents.npy")
    assert verify(store).other_problems == {"row-exponents.npy": "a FIFO, expected a file"}
    assert load_scaling(store).exponents.any()
    with pytest.raises(InputError, match=r"row-exponents\.npy is a FIFO, expected a file"):
        repair(store)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_rows_of_zeros_are_as_accurate_as_other_rows(tmp_path, size):
    X = np.zeros((9, 5))
    X[[0, 2, 4, 7]] = size * RNG.standard_normal((4, 5))
    encode(X, tmp_path / "store", 5, 3)
    decode(tmp_path / "store", tmp_path / "X.npy")
    np.testing.assert_allclose(np.load(tmp_path / "X.npy"), X, rtol=0, atol=1e-14 * size)
    w, v = RNG.standard_normal(5), RNG.standard_normal(9)
    v[[1, 3]] *= 1e100  # the factors of rows of zeros
    with cec_mpi.open_operator(tmp_path / "store", None) as operator:
        operator.available = {2, 4, 5}
        np.testing.assert_allclose(operator @ w, X @ w, rtol=0, atol=1e-14 * size)
        np.testing.assert_allclose(operator.H @ v, X.T @ v, rtol=0, atol=1e-14 * size)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("column-maxima", np.nan, "expected finite numbers"),
        ("column-maxima", -1.0, "expected finite numbers"),
        ("row-exponents", 2000, "expected exponents from -1100 to 1100"),
    ],
)
def test_values_out_of_range_are_refused(store, kind, value, message):
    """The values match the checksums in the manifest."""
    array = np.load(store / f"{kind}.npy")
    array.flat[0] = value
    for name in f"{kind}.npy", f"{kind}.copy.npy":
        np.save(store / name, array)
    manifest = read_manifest(store)
    field = kind.replace("-", "_")
    entry = structs.replace(
        getattr(manifest, field), xxh3_128=xxhash.xxh3_128_hexdigest(array.data)
    )
    for name in "manifest.json", "manifest.copy.json":
        (store / name).write_text(manifest_text(structs.replace(manifest, **{field: entry})))
    with pytest.raises(DamagedStoreError, match=message), cec_mpi.open_operator(store, None):
        pass
    if kind == "row-exponents":
        with pytest.raises(DamagedStoreError, match=message):
            decode(store, store.parent / "X.npy")
