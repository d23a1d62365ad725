"""Encode writes a matrix as coded shards, and any L of them give it back."""

import json
import os
import subprocess
import sys
from itertools import combinations, islice

import numpy as np
import pytest
import xxhash
from scipy.sparse import csr_array

from cec_mpi import encode
from cec_mpi.core.accuracy.scaling import ZERO_ROW
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import make_code
from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.store import open_store
from cec_mpi.store.format.scaling import read_scaling
from cec_mpi.store.work import LocalRunner
from helpers.stores import SmallPiecesRunner, read_files

RNG = np.random.default_rng(3)
X = RNG.standard_normal((20, 7))
SHAPES = [(20, 6, 3), (21, 6, 3), (2, 5, 4), (1, 3, 2), (7, 4, 1), (9, 4, 4), (1, 1, 1)]


def encode_and_open(directory, matrix, machines, recovery, name="store", **options):
    """Encode a matrix, and open the store."""
    np.save(directory / "X.npy", matrix)
    encode(directory / "X.npy", directory / name, machines, recovery, **options)
    return open_store(directory / name)


def decode_shards(store, machines):
    """Decode X from the shards of these machines."""
    shards = np.array([store.shard(n) for n in machines], dtype=np.float64)
    rows = store.manifest.code.generator[[n - 1 for n in machines]]
    values = np.linalg.solve(rows, shards.reshape(len(machines), -1)).reshape(shards.shape)
    values *= row_scales(store)
    return values.reshape(-1, store.manifest.columns)[: store.manifest.rows]


def row_scales(store):
    """Return the divisors of the rows of all parts of X, of shape (L, R, 1)."""
    exponents = read_scaling(store.path, store.manifest).exponents
    if exponents is None:
        return np.ones((1, 1, 1))
    return 2.0 ** np.where(exponents == ZERO_ROW, 0, exponents)[..., np.newaxis]


# --- contents of a store ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "dtype", "stored", "is_rounded"),
    [
        ("<f8", None, "float64", False),
        (">f8", "float32", "float32", True),
        ("g", None, "float64", True),
        ("<f2", None, "float32", False),
        (">i2", "float32", "float32", False),
        (">u8", None, "float64", True),
    ],
)
def test_a_store_has_a_dtype_for_each_dtype_of_x(tmp_path, source, dtype, stored, is_rounded):
    matrix = RNG.uniform(0, 100, (20, 7)).astype(source)
    store = encode_and_open(tmp_path, matrix, 5, 3, dtype=dtype)
    assert store.manifest.dtype == store.shard(1).dtype == stored
    assert store.manifest.rounded is is_rounded
    error = np.abs(decode_shards(store, (1, 3, 5)) - matrix.astype(np.float64)).max()
    assert error <= 100 * np.finfo(stored).eps * float(matrix.max())


@pytest.mark.parametrize(("rows", "machines", "recovery"), [*SHAPES, (40, 12, 5)])
def test_any_l_shards_give_x_back(tmp_path, rows, machines, recovery):
    matrix = RNG.standard_normal((rows, 5))
    store = encode_and_open(tmp_path, matrix, machines, recovery)
    bound = 1e-14 * store.manifest.code.conditioning.worst * np.abs(matrix).max()
    for chosen in islice(combinations(range(1, machines + 1), recovery), 100):
        assert np.abs(decode_shards(store, chosen) - matrix).max() <= bound


@pytest.mark.parametrize("systematic", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_shard_is_its_row_of_the_generator_times_the_parts(tmp_path, family, systematic):
    store = encode_and_open(tmp_path, X, 6, 3, code=family, systematic=systematic, seed=5)
    code, expected = store.manifest.code, make_code(6, 3, family, systematic=systematic, seed=5)
    entry = json.loads((store.path / "manifest.json").read_text())["code"]
    assert (entry["family"], entry["systematic"]) == (family, systematic)
    assert np.array(entry["generator"]).tobytes() == expected.generator.tobytes()
    assert code.generator.tobytes() == expected.generator.tobytes()
    assert code.conditioning == expected.conditioning
    parts = np.vstack([X, np.zeros((1, 7))]).reshape(3, 7, 7) / row_scales(store)
    shards = np.array([store.shard(n) for n in range(1, 7)])
    assert np.allclose(shards, np.einsum("nl,lrc->nrc", code.generator, parts), rtol=0, atol=1e-13)
    assert np.array_equal(shards[:3], parts) or not systematic


def test_the_manifest_describes_all_files(tmp_path):
    matrix = RNG.standard_normal((250, 150)).astype(np.float32)
    store = encode_and_open(tmp_path, matrix, 4, 2)
    files = read_files(store.path, exclude="source.json")
    originals = ["checksums-1.npy", "column-maxima.npy", "row-exponents.npy", "manifest.json"]
    copies = [name.replace(".", ".copy.", 1) for name in originals]
    shards = [f"shard-000{n}.npy" for n in range(1, 5)]
    assert sorted(files) == sorted([*originals, *copies, *shards])
    assert [files[name] for name in originals] == [files[name] for name in copies]
    manifest = json.loads(files["manifest.json"])
    assert manifest["created_by"].startswith("cec_mpi ")
    expected = {"format": "cec_mpi store", "version": 2, "dtype": "float32", "rows_per_shard": 125}
    expected |= {"rows": 250, "columns": 150, "machines": 4, "recovery": 2}
    assert expected.items() <= manifest.items()
    blocks = np.load(store.path / "checksums-1.npy")
    rows = store.manifest.grid.block_rows
    for entry, name, row in zip(store.manifest.shards, shards, blocks, strict=True):
        assert (entry.file, entry.bytes) == (name, len(files[name]))
        shard = np.load(store.path / name)
        sums = [xxhash.xxh3_64_intdigest(shard[k : k + rows]) for k in range(0, 125, rows)]
        assert row.tolist() == sums
        assert entry.xxh3_128 == xxhash.xxh3_128_hexdigest(row.astype("<u8"))


# --- blocks and memory --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "order"),
    [
        (200, 37, "float32", "C"),
        (5000, 3, "float64", "F"),
        (7, 3000, "float64", "C"),
        (1, 9999, "float32", "C"),
        (52, 700, "float64", "F"),
        (1500, 1, "float32", "F"),
    ],
)
def test_bytes_do_not_depend_on_threads_pieces_or_memory(tmp_path, rows, columns, dtype, order):
    matrix = np.asarray(RNG.standard_normal((rows, columns)), dtype, order=order)
    first = encode_and_open(tmp_path, matrix, 6, 3, "first", block_bytes=1 << 12)
    assert first.manifest.grid.count > 1 or columns == 1
    for name, options in {
        "pieces": {"runner": SmallPiecesRunner(threads=1), "memory": 200 << 20},
        "threads": {"runner": SmallPiecesRunner(threads=5)},
    }.items():
        store = encode_and_open(tmp_path, matrix, 6, 3, name, block_bytes=1 << 12, **options)
        assert read_files(store.path, exclude="source.json") == read_files(
            first.path, exclude="source.json"
        )
    assert np.allclose(decode_shards(first, (2, 4, 6)), matrix, rtol=0, atol=1e-5)


LIMIT = 192 << 20
PEAK = "next(int(line.split()[1]) for line in open('/proc/self/status') if 'VmHWM' in line)"
MEMORY_USE = f"""
import sys, numpy as np, cec_mpi
path = sys.argv[1] + "/X.npy"
{{make}}
before = {PEAK}
cec_mpi.encode(X, sys.argv[1] + "/store", 6, 3, memory={LIMIT})
print({PEAK} - before)
"""
MAP = "np.lib.format.open_memmap(path, 'w+', np.float32, "  # zeros, which take up no disk space


@pytest.mark.parametrize(
    "make",
    [
        f"{MAP}(250_000, 100), True); X = path",
        f"{MAP}(3, 8_000_000)); X = path",
        f"X = {MAP}(500_000, 100))",
        "import dask.array; X = dask.array.zeros((250_000, 100), np.float32, chunks=(10_000, 50))",
    ],
    ids=["Fortran order", "long rows", "memmap", "dask"],
)
def test_memory_stays_below_its_limit(tmp_path, make):
    program = MEMORY_USE.format(make=make)
    used = int(subprocess.check_output([sys.executable, "-c", program, tmp_path]))
    assert used < LIMIT >> 10


# --- errors -------------------------------------------------------------------------------


def with_entry(row, column, value, dtype):
    matrix = X.astype(dtype)
    matrix[row, column] = value
    return matrix


@pytest.mark.parametrize(
    ("matrix", "options", "error", "message"),
    [
        (with_entry(7, 2, np.inf, "f4"), {}, InputError, r"X\.npy holds inf at row 7, column 2 "),
        (np.full((6, 2), 1.7e308), {"scaling": "none"}, InputError, "has numbers too large"),
        (X, {"memory": 64 << 20}, InputError, r"memory 64M is too small, expected at least \d+M"),
        (
            X,
            {"machines": 24, "recovery": 12, "code": "fourier", "dtype": "float32"},
            InputError,
            "decode to noise",
        ),
    ],
)
def test_bad_numbers_and_options_leave_no_files(tmp_path, matrix, options, error, message):
    with pytest.raises(error, match=message):
        encode_and_open(tmp_path, matrix, **{"machines": 6, "recovery": 3} | options)
    assert [path.name for path in tmp_path.iterdir()] == ["X.npy"]


@pytest.mark.parametrize(
    "occupy",
    [
        lambda path: encode(2 * X, path, 4, 2),
        lambda path: path.mkdir(),
        lambda path: path.write_text("mine"),
        lambda path: path.symlink_to("nowhere"),
    ],
    ids=["store", "directory", "file", "dangling link"],
)
@pytest.mark.parametrize("options", [{"recovery": 2}, {"copies": 2}], ids=str)
def test_existing_files_and_directories_are_not_replaced(tmp_path, occupy, options):
    occupy(tmp_path / "store")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    with pytest.raises(InputError, match="store exists already: choose another name"):
        encode(csr_array(X), tmp_path / "store", 4, **options)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("source", "options"), [(X, {"recovery": 3}), (csr_array(X), {"copies": 2})]
)
def test_a_shard_that_is_truncated_during_the_encode_raises(tmp_path, source, options):
    def truncate_shard(done, total):
        for file in tmp_path.rglob("shard-0001*"):
            os.truncate(file, 10)

    with pytest.raises(DamagedStoreError, match=r"store/shard-0001.* bytes"):
        encode(
            source, tmp_path / "store", 4, runner=LocalRunner(on_progress=truncate_shard), **options
        )
