"""A matrix on disk to coded shards on disk: any L of them give it back."""

import json
import os
import subprocess
import sys
from itertools import combinations, islice

import numpy as np
import psutil
import pytest
import xxhash
from scipy.sparse import csr_array

from cec_mpi import encode
from cec_mpi.core.accuracy.scaling import ZERO_ROW
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import make_code
from cec_mpi.errors import DamagedStoreError, InfeasibleError, InputError
from cec_mpi.store import open_store
from cec_mpi.store.format.scaling import read_scaling
from cec_mpi.store.work import LocalRunner

RNG = np.random.default_rng(3)
X = RNG.standard_normal((20, 7))
SHAPES = [
    (20, 6, 3),
    (21, 6, 3),
    (2, 5, 4),
    (1, 3, 2),
    (7, 4, 1),
    (9, 4, 4),
    (1, 1, 1),
    (40, 12, 5),
]


def encoded(directory, matrix, machines, recovery, name="store", **options):
    """The store that `encode` makes of this matrix, opened."""
    np.save(directory / "X.npy", matrix)
    encode(directory / "X.npy", directory / name, machines, recovery, **options)
    return open_store(directory / name)


def decoded(store, machines):
    """X from the shards of these machines."""
    shards = np.array([store.shard(n) for n in machines], dtype=np.float64)
    rows = store.manifest.code.generator[[n - 1 for n in machines]]
    values = np.linalg.solve(rows, shards.reshape(len(machines), -1)).reshape(shards.shape)
    values *= powers_of(store)
    return values.reshape(-1, store.manifest.columns)[: store.manifest.rows]


def powers_of(store):
    """What each row of the parts of X was divided by: (L, R, 1)."""
    exponents = read_scaling(store.path, store.manifest).exponents
    if exponents is None:
        return np.ones((1, 1, 1))
    return 2.0 ** np.where(exponents == ZERO_ROW, 0, exponents)[..., np.newaxis]


def parts_of(matrix, recovery):
    """X_1 .. X_L: the rows in order, zeros at the end."""
    rows = -(-len(matrix) // recovery)
    padded = np.zeros((recovery * rows, matrix.shape[1]))
    padded[: len(matrix)] = matrix
    return padded.reshape(recovery, rows, -1)


def contents(store):
    """All files but the one with the time of X."""
    return {
        path.name: path.read_bytes() for path in store.path.iterdir() if path.name != "source.json"
    }


# --- what is stored -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept", "rounded"),
    [
        ("float32", None, False),
        ("float64", None, False),
        ("float64", "float32", True),
        ("float16", "float32", False),
        ("int16", "float32", False),
        ("uint32", "float32", True),
        ("uint32", "float64", False),
        ("int64", "float64", True),
        ("bool", "float32", False),
    ],
)
def test_a_store_knows_whether_it_has_the_digits_of_X(tmp_path, given, kept, rounded):
    matrix = np.arange(12).reshape(4, 3).astype(given)
    made = encode(matrix, tmp_path / "store", 3, 2, dtype=kept)
    assert made.rounded is rounded
    assert open_store(tmp_path / "store").manifest.rounded is rounded


@pytest.mark.parametrize(("rows", "machines", "recovery"), SHAPES)
def test_any_l_shards_give_x_back(tmp_path, rows, machines, recovery):
    matrix = RNG.standard_normal((rows, 5))
    store = encoded(tmp_path, matrix, machines, recovery)
    bound = 1e-14 * store.manifest.code.conditioning.worst * np.abs(matrix).max()
    for chosen in islice(combinations(range(1, machines + 1), recovery), 100):
        assert np.abs(decoded(store, chosen) - matrix).max() <= bound


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("source", "stored"),
    [
        ("<f8", "float64"),
        (">f8", "float64"),
        ("g", "float64"),
        ("<f4", "float32"),
        (">f4", "float32"),
        ("<f2", "float32"),
        (">f2", "float32"),
        ("?", "float64"),
        ("i1", "float64"),
        (">i2", "float64"),
        ("<i8", "float64"),
        (">u8", "float64"),
    ],
)
def test_every_kind_of_real_matrix_is_taken(tmp_path, source, stored, order):
    matrix = np.asarray(RNG.uniform(0, 100, (20, 7)), order=order).astype(source)
    store = encoded(tmp_path, matrix, 5, 3)
    assert store.manifest.dtype == store.shard(1).dtype == stored
    error = np.abs(decoded(store, (1, 3, 5)) - matrix.astype(np.float64)).max()
    assert error <= 100 * np.finfo(stored).eps * float(matrix.max())


@pytest.mark.parametrize("systematic", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_shard_is_its_row_of_the_generator_times_the_parts(tmp_path, family, systematic):
    store = encoded(tmp_path, X, 6, 3, code=family, systematic=systematic)
    code, parts = store.manifest.code, parts_of(X, 3) / powers_of(store)
    shards = np.array([store.shard(n) for n in range(1, 7)])
    assert np.allclose(shards, np.einsum("nl,lrc->nrc", code.generator, parts), rtol=0, atol=1e-13)
    assert np.array_equal(shards[:3], parts) or not systematic
    assert (code.family, code.systematic) == (family, systematic)


def test_files_of_a_store_are_what_its_manifest_says(tmp_path):
    matrix = RNG.standard_normal((250, 150)).astype(np.float32)
    store = encoded(tmp_path, matrix, 4, 2)
    names = [f"shard-000{n}.npy" for n in range(1, 5)]
    arrays = [f"{name}.npy" for name in ("checksums-1", "column-sizes", "row-exponents")]
    others = [*arrays, *(name.replace(".npy", ".copy.npy") for name in arrays)]
    others += ["manifest.copy.json", "manifest.json"]
    assert sorted(contents(store)) == sorted([*others, *names])
    for name in arrays:
        assert contents(store)[name] == contents(store)[name.replace(".npy", ".copy.npy")]
    assert contents(store)["manifest.json"] == contents(store)["manifest.copy.json"]
    blocks = np.load(store.path / "checksums-1.npy")
    for n, entry in enumerate(store.manifest.shards, start=1):
        assert entry.file == names[n - 1]
        assert entry.bytes == (store.path / entry.file).stat().st_size
        shard = np.load(store.path / entry.file)
        assert np.array_equal(shard, store.shard(n))
        rows = store.manifest.grid.block_rows
        sums = [xxhash.xxh3_64_intdigest(shard[k : k + rows]) for k in range(0, 125, rows)]
        assert blocks[n - 1].tolist() == sums
        assert entry.xxh3_128 == xxhash.xxh3_128_hexdigest(blocks[n - 1].astype("<u8"))


def test_the_manifest_is_json_with_the_options_of_the_encode(tmp_path):
    store = encoded(tmp_path, X.astype(np.float32), 6, 3, code="gaussian", systematic=True)
    content = json.loads((store.path / "manifest.json").read_text())
    assert (content["format"], content["version"]) == ("cec_mpi store", 2)
    assert content["created_by"].startswith("cec_mpi ")
    expected = {"rows": 20, "columns": 7, "machines": 6, "recovery": 3, "rows_per_shard": 7}
    assert expected.items() <= content.items()
    assert content["dtype"] == "float32"
    assert content["code"]["family"] == "gaussian"
    assert content["code"]["systematic"] is True
    assert len(content["shards"]) == 6


@pytest.mark.parametrize("family", FAMILIES)
def test_the_code_comes_back_bit_for_bit(tmp_path, family):
    store = encoded(tmp_path, X, 11, 4, code=family, seed=5)
    made = make_code(11, 4, family, seed=5)
    written = json.loads((store.path / "manifest.json").read_text())["code"]["generator"]
    assert np.array(written, dtype=np.float64).tobytes() == made.generator.tobytes()
    assert store.manifest.code.generator.tobytes() == made.generator.tobytes()
    assert store.manifest.code.conditioning == made.conditioning


def test_paths_may_be_relative_text_with_spaces(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("my matrix.npy", X)
    encode("my matrix.npy", "my store/", 3, 2)
    assert np.allclose(decoded(open_store("my store"), (1, 3)), X)


# --- blocks -------------------------------------------------------------------------------


SMALL = {"block_bytes": 1 << 12}  # so that a small store has many blocks


class OneByOne(LocalRunner):
    """One thread, and each piece as small as it can be."""

    processes = 1 << 20

    def __init__(self, threads=1):
        super().__init__(threads=threads)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "columns"), [(200, 37), (5000, 3), (7, 3000), (1, 9999)])
def test_the_bytes_do_not_depend_on_threads_pieces_or_memory(tmp_path, rows, columns, dtype):
    matrix = RNG.standard_normal((rows, columns)).astype(dtype)
    at_once = encoded(tmp_path, matrix, 6, 3, "at-once", **SMALL)
    assert at_once.manifest.grid.count > 1
    in_pieces = encoded(
        tmp_path, matrix, 6, 3, "in-pieces", runner=OneByOne(), memory=200 << 20, **SMALL
    )
    threaded = encoded(tmp_path, matrix, 6, 3, "threaded", runner=OneByOne(threads=5), **SMALL)
    assert contents(in_pieces) == contents(at_once) == contents(threaded)
    assert np.allclose(decoded(in_pieces, (2, 4, 6)), matrix, rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 700), (51, 9), (52, 700), (1500, 1)])
def test_blocks_that_do_not_fit_the_rows_lose_none(tmp_path, rows, columns, order):
    matrix = np.asarray(RNG.standard_normal((rows, columns)), order=order)
    store = encoded(tmp_path, matrix, 5, 3, runner=OneByOne(), **SMALL)
    assert np.allclose(decoded(store, (1, 2, 5)), matrix, rtol=0, atol=1e-12)


LITTLE = 256 << 20


@pytest.mark.parametrize(("rows", "columns", "order"), [(400_000, 100, "F"), (3, 13_000_000, "C")])
def test_memory_stays_in_its_bound_whatever_the_shape_of_x(tmp_path, rows, columns, order):
    source = tmp_path / "X.npy"
    shape = (rows, columns)
    X = np.lib.format.open_memmap(
        source, mode="w+", dtype=np.float32, shape=shape, fortran_order=order == "F"
    )
    del X  # 160 MB of zeros, which take no space on the disk
    peak = "print(next(line for line in open('/proc/self/status') if 'VmHWM' in line).split()[1])"
    program = f"import sys, cec_mpi\ncec_mpi.encode(*sys.argv[1:], 6, 3, memory={LITTLE})"
    bare = int(subprocess.check_output([sys.executable, "-c", peak]))
    arguments = [sys.executable, "-c", f"{program}\n{peak}", source, tmp_path / "store"]
    above = int(subprocess.check_output(arguments)) - bare
    assert 30_000 < above < LITTLE >> 10


def test_too_little_memory_is_refused_with_what_is_needed(tmp_path):
    with pytest.raises(InputError, match=r"memory 64M is too small, expected at least \d+M"):
        encoded(tmp_path, X, 6, 3, memory=64 << 20)
    assert [path.name for path in tmp_path.iterdir()] == ["X.npy"]


def test_more_shards_than_a_process_may_open_files(tmp_path):
    np.save(tmp_path / "X.npy", X)
    program = (
        "import resource, sys, cec_mpi; cec_mpi.encode;"  # loads what it needs
        "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24));"
        "cec_mpi.encode(sys.argv[1], sys.argv[2], 60, 2)"
    )
    arguments = [tmp_path / "X.npy", tmp_path / "store"]
    subprocess.run([sys.executable, "-c", program, *map(str, arguments)], check=True)
    assert np.allclose(decoded(open_store(tmp_path / "store"), (1, 31)), X)


# --- what is refused ----------------------------------------------------------------------


def test_an_archive_is_refused_and_not_left_open(tmp_path):
    np.savez(tmp_path / "X.npz", a=X)
    with pytest.raises(InputError, match=r"X\.npz is an archive of arrays") as refused:
        encode(tmp_path / "X.npz", tmp_path / "store", 4, 2)
    assert str(tmp_path / "X.npz") not in [file.path for file in psutil.Process().open_files()]
    assert "expected one array (.npy)" in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["X.npz"]


@pytest.mark.parametrize(
    ("row", "column", "value", "dtype"),
    [
        (0, 0, np.nan, "f8"),
        (6, 6, np.nan, ">f8"),
        (7, 2, np.inf, "f4"),
        (14, 0, -np.inf, "f2"),
        (19, 6, -np.inf, "g"),
    ],
)
def test_numbers_that_are_not_finite_are_named(tmp_path, row, column, value, dtype):
    matrix = X.astype(dtype)
    matrix[row, column] = value
    with pytest.raises(InputError, match=rf"X\.npy holds {value} at row {row}, column {column}\b"):
        encoded(tmp_path, matrix, 6, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["X.npy"]


def test_sums_too_large_for_the_shards_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"X\.npy has numbers too large"):
        encoded(tmp_path, np.full((6, 2), 1.7e308), 6, 3, scaling="none")
    assert [path.name for path in tmp_path.iterdir()] == ["X.npy"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"machines": 2, "recovery": 3}, InfeasibleError, "threshold 3 for 2 machines"),
        ({"dtype": "float16"}, InputError, "dtype 'float16': expected float32 or float64"),
        (
            {"machines": 24, "recovery": 12, "code": "fourier", "dtype": "float32"},
            InputError,
            "decode to noise",
        ),
    ],
)
def test_codes_that_cannot_work_are_refused(tmp_path, options, error, message):
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(error, match=message):
        encode(tmp_path / "X.npy", tmp_path / "store", **{"machines": 6, "recovery": 3} | options)
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
def test_an_existing_name_is_refused_and_stays(tmp_path, occupy):
    np.save(tmp_path / "X.npy", X)
    occupy(tmp_path / "store")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    with pytest.raises(InputError, match="store exists"):
        encode(tmp_path / "X.npy", tmp_path / "store", 4, 2)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_a_store_that_cannot_be_begun_leaves_nothing(tmp_path):
    np.save(tmp_path / "X.npy", RNG.standard_normal((1000, 20)))
    program = (
        "import resource, sys; from cec_mpi.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000));"
        "sys.exit(main(['encode', *sys.argv[1:], '--machines', '4', '--recovery', '2']))"
    )
    arguments = [tmp_path / "X.npy", tmp_path / "store"]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("cec-mpi: error: ")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["X.npy"]


@pytest.mark.parametrize(("source", "kind"), [(X, {"recovery": 3}), (csr_array(X), {"copies": 2})])
def test_a_store_that_cannot_be_opened_is_not_announced(tmp_path, source, kind):
    """A disk that loses most of a shard while others are written."""

    def cut(done, total):
        for file in tmp_path.rglob("shard-0001*"):
            os.truncate(file, 10)

    with pytest.raises(DamagedStoreError, match=r"store/shard-0001.* bytes"):
        encode(source, tmp_path / "store", 4, runner=LocalRunner(watch=cut), **kind)
