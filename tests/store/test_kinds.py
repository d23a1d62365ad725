"""A kind of store needs only a manifest, a shard, an output and a line of `STORE_KINDS`."""

from functools import cached_property

import numpy as np
import pytest
from msgspec.structs import replace

from cec_mpi import open_operator
from cec_mpi.cli import main
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.errors import DamagedStoreError
from cec_mpi.store import add_machine, decode, open_store, repair, verify
from cec_mpi.store.dense import DenseShard
from cec_mpi.store.file_shard import FileShard
from cec_mpi.store.files.npy import npy_header
from cec_mpi.store.format.array_files import publish_pieces
from cec_mpi.store.format.checksums import block_checksum, publish_checksums, shard_checksum
from cec_mpi.store.format.manifest import (
    COLUMN_MAXIMA,
    ArrayEntry,
    ChecksumsEntry,
    Manifest,
    ShardEntry,
)
from cec_mpi.store.kinds import STORE_KINDS, StoreKind
from cec_mpi.store.manifest_files import publish_manifest
from cec_mpi.store.shard import LoadCost
from helpers.stores import flip_bit

ROWS, COLUMNS, HEIGHT = 50, 7, 8  # of X, and rows of a block


class MirrorManifest(Manifest, frozen=True, kw_only=True, dict=True):
    """A manifest of a store in which every machine has all rows of X."""

    block_rows: int

    @cached_property
    def code(self):
        return MDSCode(np.ones((self.machines, 1)), "mirror")

    summary = "a mirror"
    rows_per_shard = property(lambda self: self.rows)
    block_count = property(lambda self: -(-self.rows // self.block_rows))
    block_bytes = property(lambda self: self.block_rows * self.columns * self.itemsize)

    def check(self):
        if not 1 <= self.block_rows <= self.rows:
            raise ValueError(f"block_rows is {self.block_rows}")

    def header_of(self, machine):
        return npy_header((self.rows, self.columns), np.dtype(self.dtype))

    def bytes_of(self, machine):
        return len(self.header_of(machine)) + self.rows * self.columns * self.itemsize

    def rows_of(self, block):
        return block * self.block_rows, min((block + 1) * self.block_rows, self.rows)

    def block_extent(self, block, machine):
        start, stop = self.rows_of(block)
        row = self.columns * self.itemsize
        return len(self.header_of(machine)) + start * row, (stop - start) * row

    def extend(self, seed):
        number = self.machines + 1
        entry = ShardEntry(self.file_of(number), self.bytes_of(number), "", ())
        return replace(self, machines=number, shards=(*self.shards, entry))


class MirrorShard(FileShard, DenseShard):
    def __init__(self, path, store, manifest, *options):
        super().__init__(path, store, manifest, *options)
        self.manifest, shape = manifest, (manifest.rows, manifest.columns)
        offset = manifest.block_extent(0, self.machine)[0]
        self.rows = self.array_at(offset, shape[0] * shape[1], manifest.dtype).reshape(shape)

    def pieces(self, start, stop):
        return (self.rows[start:stop],)

    def load(self, intervals):
        height = self.manifest.block_rows
        return LoadCost(
            0.0,
            self.load_blocks(k for a, b in intervals for k in range(a // height, -(-b // height))),
        )


class MirrorOutput:
    def __init__(self, path, delimiter):
        self.path = path

    def size(self, manifest):
        return manifest.shard_bytes

    def write(self, blocks, partial, memory, runner):
        manifest = blocks.manifest
        parts = []
        for block in range(manifest.block_count):
            if not (copies := blocks.read(block)):
                raise DamagedStoreError(manifest.describe_lost([block]))
            parts.append(next(iter(copies.values())).view(manifest.dtype).copy())
        with partial.open("wb") as file:
            np.save(file, np.concatenate(parts).reshape(manifest.rows, manifest.columns))
        return 0.0


MIRROR = StoreKind(*(f"{__name__}:Mirror{part}" for part in ("Manifest", "Shard", "Output")))


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((ROWS, COLUMNS))


@pytest.fixture
def store(X, tmp_path, monkeypatch):
    monkeypatch.setitem(STORE_KINDS, "block_rows", MIRROR)
    path = tmp_path / "S"
    path.mkdir()
    sums = np.array([block_checksum(X[k : k + HEIGHT]) for k in range(0, ROWS, HEIGHT)], np.uint64)
    for machine in (1, 2, 3):
        np.save(path / f"shard-000{machine}.npy", X)
    maxima = np.abs(X).max(axis=0)
    digest = publish_pieces(path, COLUMN_MAXIMA, maxima.shape, maxima.dtype, (maxima,))
    size = (path / "shard-0001.npy").stat().st_size
    manifest = MirrorManifest(
        rows=ROWS,
        columns=COLUMNS,
        machines=3,
        dtype="float64",
        rounded=False,
        checksums=ChecksumsEntry.for_generation(1),
        column_maxima=ArrayEntry(COLUMN_MAXIMA, digest),
        shards=tuple(
            ShardEntry(f"shard-000{n}.npy", size, shard_checksum(sums), ()) for n in (1, 2, 3)
        ),
        block_rows=HEIGHT,
    )
    publish_checksums(path, manifest, np.tile(sums, (3, 1)))
    publish_manifest(path, manifest)
    return path


def test_damage_is_rebuilt_from_other_machines(store, X, tmp_path):
    flip_bit(store / "shard-0002.npy", 1000)
    (store / "shard-0003.npy").unlink()
    condition = verify(store)
    assert condition.damaged == [2, 3]
    assert condition.problems[1] == "rows 8..15 do not match their checksum"
    result = repair(store)
    assert (result.rebuilt, result.error_bound) == ({2: "rows 8..15", 3: "rows 0..49"}, 0.0)
    assert verify(store).damaged == []
    np.testing.assert_array_equal(np.load(store / "shard-0003.npy"), X)


def test_a_store_grows_and_is_decoded(store, X, tmp_path):
    assert add_machine(store).machines == 4
    assert verify(store).damaged == []
    (store / "shard-0001.npy").unlink()
    decode(store, tmp_path / "again.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "again.npy"), X)
    np.testing.assert_array_equal(open_store(store).shard(4), X)


def test_shards_multiply_and_commands_describe_the_store(store, X, capsys):
    with open_operator(store, None, availability={2}) as operator:
        np.testing.assert_allclose(operator @ np.ones(COLUMNS), X.sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(operator.H @ np.ones(ROWS), X.sum(axis=0), rtol=1e-12)
    flip_bit(store / "shard-0002.npy", 2000)
    with pytest.raises(DamagedStoreError, match=r"rows 32\.\.39 do not match their checksum"):
        open_store(store).open_shard(2).load(((30, 40),))
    assert main(["info", str(store)]) == 0
    assert "50 x 7 float64" in capsys.readouterr().out
