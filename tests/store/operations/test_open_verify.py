"""Opening and verification of stores, shards and manifests."""

import json
import mmap
import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

from cec_mpi import encode
from cec_mpi.errors import DamagedStoreError, InputError, StoreError
from cec_mpi.store import open_store, verify
from cec_mpi.store.coded.manifest import shard_header
from cec_mpi.store.manifest_files import content_checksum
from helpers.stores import encode_in_small_blocks, flip_bit

MACHINES, RECOVERY, ROWS, COLUMNS = 4, 2, 300, 100  # shards of 120 kB


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store of one block per shard."""
    X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    path = tmp_path_factory.mktemp("template") / "store"
    encode(X, path, MACHINES, RECOVERY)
    return path


@pytest.fixture
def path(template, tmp_path):
    return shutil.copytree(template, tmp_path / "store")


def find_problems(path):
    """Return the problems that verify finds in the files of a store, by name."""
    condition = verify(path)
    shards = open_store(path).manifest.shards
    problems = {shard.file: text for shard, text in zip(shards, condition.problems, strict=True)}
    return {file: text for file, text in (problems | condition.other_problems).items() if text}


def shard_name(machine):
    return f"shard-{machine:04d}.npy"


# --- a good store -------------------------------------------------------------------------


def test_a_shard_is_a_read_only_memory_map(path):
    shard = open_store(str(path)).shard(2)
    assert shard.shape == (ROWS // RECOVERY, COLUMNS)
    assert shard.dtype == np.float64
    assert shard.flags.c_contiguous
    base = shard
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base.obj, mmap.mmap)
    with pytest.raises(ValueError, match="read-only"):
        shard[0, 0] = 1
    assert np.array_equal(shard, np.load(path / shard_name(2)))


@pytest.mark.parametrize("machine", [0, MACHINES + 1, 1.5])
def test_a_machine_out_of_range_is_refused(path, machine):
    with pytest.raises(InputError, match=f"machine {machine}: expected 1 to {MACHINES}"):
        open_store(path).shard(machine)


# --- damaged shards -----------------------------------------------------------------------


SHARD = "shard-0003.npy"
# A change of a shard file, the message, and whether it is found without reading the rows.
DAMAGES = {
    "missing": (lambda file: file.unlink(), "missing", True),
    "truncated": (lambda file: os.truncate(file, 9), "9 bytes, expected 120128", True),
    "longer": (lambda file: os.truncate(file, 120_129), "120129 bytes, expected 120128", True),
    "header": (lambda file: flip_bit(file, 0), "its header differs from what was written", True),
    "rows": (lambda file: flip_bit(file, 130), "rows 0..149 do not match their checksum", False),
    "directory": (lambda file: (file.unlink(), file.mkdir()), "a directory, expected a", True),
}


@pytest.mark.parametrize(("damage", "message", "is_visible"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_shard_is_named(path, damage, message, is_visible):
    damage(path / SHARD)
    store = open_store(path)
    with pytest.raises(DamagedStoreError, match=rf"shard-0003\.npy: .*{message}") as error:
        store.shard(3)
    assert error.value.exit_code == 5
    assert find_problems(path).keys() == {SHARD}
    assert message in find_problems(path)[SHARD]
    assert store.shard(1).shape == store.shard(4).shape == (ROWS // RECOVERY, COLUMNS)
    if is_visible:
        with pytest.raises(DamagedStoreError, match=message):
            store.check_files()


def test_swapped_shards_are_both_named(path):
    (path / shard_name(1)).rename(path / "aside")
    (path / shard_name(2)).rename(path / shard_name(1))
    (path / "aside").rename(path / shard_name(2))
    with pytest.raises(DamagedStoreError, match=r"shard-0001\.npy: rows 0..149 do not match"):
        open_store(path).shard(1)
    assert find_problems(path) == {
        shard_name(1): "holds the data of shard-0002.npy",
        shard_name(2): "holds the data of shard-0001.npy",
    }


@pytest.fixture(scope="module")
def small_blocks(tmp_path_factory):
    """A store of many small blocks."""
    X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    return encode_in_small_blocks(tmp_path_factory.mktemp("small"), X, MACHINES, RECOVERY)


def test_a_shard_without_checksums_cannot_be_opened(path):
    flip_bit(path / "checksums-1.npy", -5)
    flip_bit(path / "checksums-1.copy.npy", -3)
    with pytest.raises(DamagedStoreError, match=r"checksums of machine 4.*cec-mpi repair"):
        open_store(path).open_shard(MACHINES)
    assert open_store(path).open_shard(MACHINES, verify="never").rows.shape == (150, COLUMNS)


def test_only_requested_blocks_are_read_and_checked(small_blocks, tmp_path):
    path = shutil.copytree(small_blocks, tmp_path / "copy")
    flip_bit(path / shard_name(2), 128 + 8 * COLUMNS * 100)
    for holding in ("mmap", "ram"):
        shard = open_store(path).open_shard(2, holding)
        first = shard.load([(0, 7)])
        assert first.bytes == 10 * 8 * COLUMNS  # two blocks of five rows
        assert shard.load([(2, 9)]).bytes == 0
        assert shard.load([(0, 50), (120, 150)]).bytes == 70 * 8 * COLUMNS
        assert np.array_equal(shard.rows[:50], np.load(path / shard_name(2))[:50])
        with pytest.raises(
            DamagedStoreError, match=r"shard-0002\.npy: rows 100\.\.104 do not match"
        ):
            shard.load([(90, 110)])
        unchecked = open_store(path).open_shard(2, holding, "never")
        bytes_read = unchecked.load([(90, 110)]).bytes
        assert bytes_read == (20 * 8 * COLUMNS if holding == "ram" else 0)


# --- no store, or a damaged manifest ------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe\x00garbage", b"[]", b"{}", b"[" * 100_000, None],
    ids=["empty", "truncated", "bytes", "list", "object", "deep", "directory"],
)
def test_an_invalid_manifest_is_named(path, data):
    (path / "manifest.json").unlink()
    if data is None:
        (path / "manifest.json").mkdir()
    else:
        (path / "manifest.json").write_bytes(data)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        open_store(path)


REMOVED = "no entry"


def change_manifest(path, *keys, value, with_checksum=False):
    """Change or remove an entry of the manifest, optionally with a matching checksum."""
    file = path / "manifest.json"
    content = json.loads(file.read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    if value is REMOVED:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    if with_checksum:
        content["sha256"] = content_checksum(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("format",), "zip"),
        (("rows",), ROWS + 1),
        (("rows",), float(ROWS)),
        (("rows",), str(ROWS)),
        (("grid",), REMOVED),
        (("grid", "block_rows"), REMOVED),
        (("recovery",), 3),
        (("rows_per_shard",), 151),
        (("dtype",), "float16"),
        (("code", "generator"), [[]]),
        (("missing",), {"treatment": "mean", "dropped": 5}),
        (("code", "generator", 0, 0), 1e400),
        (("code", "conditioning", "worst"), 1.0),
        (("code", "conditioning", "worst_machines"), [1, 99]),
        (("code", "conditioning", "worst_machines"), [1, 1]),
        (("code", "family"), "nonsense"),
        (("code", "systematic"), True),
        (("shards", 0, "rebuilt"), [{"start": 0, "stop": 5, "error_bound": 0.0}] * 2),
        (("shards", 0, "rebuilt"), [{"start": 0, "stop": 151, "error_bound": 0.0}]),
        (("shards", 0, "xxh3_128"), "\ud800"),
        (("shards", 0, "file"), "../other/shard-0001.npy"),
        (("grid", "block_rows"), 151),
        (("grid", "block_columns"), 50),
        (("checksums", "algorithm"), "md5"),
        (("checksums", "file"), "../checksums-1.npy"),
        (("shard_header",), ""),
        (("shard_header",), "\x93NUMPY\x01\x00v\x00{}"),
    ],
    ids=str,
)
def test_an_inconsistent_manifest_is_refused(path, keys, value):
    change_manifest(path, *keys, value=value, with_checksum=True)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        open_store(path)


def test_a_missing_manifest_can_be_restored_by_repair(path):
    (path / "manifest.json").unlink()
    with pytest.raises(DamagedStoreError, match=r"manifest\.json is missing in .*: cec-mpi repair"):
        open_store(path)


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ("version", 7, StoreError, "has version 7, but this version of cec_mpi reads only 2: enc"),
        ("rows", ROWS - 1, DamagedStoreError, "is damaged: it was altered"),
        ("created_by", "somebody else", DamagedStoreError, "is damaged: it was altered"),
    ],
)
def test_an_altered_manifest_is_refused(path, key, value, error, message):
    change_manifest(path, key, value=value)
    with pytest.raises(error, match=rf"manifest\.json {message}"):
        open_store(path)


@pytest.fixture
def little_memory():
    """Limit what this process may allocate to 1 GiB."""
    limit, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("command", ["info", "verify", "repair", "add-machine"])
@pytest.mark.parametrize("columns", [2**26, 2**40])
def test_a_manifest_that_states_impossible_sizes_is_damaged(path, call, command, columns):
    content = json.loads((path / "manifest.json").read_text())
    header = shard_header(ROWS // RECOVERY, columns, "float64")
    content |= {"columns": columns, "shard_header": header}
    content["grid"] = {"block_rows": 1, "block_columns": 2**17}
    for shard in content["shards"]:
        shard["bytes"] = len(header) + ROWS // RECOVERY * columns * 8
    content["sha256"] = content_checksum(content)
    for name in ("manifest.json", "manifest.copy.json"):
        (path / name).write_text(json.dumps(content))
    code, _, message = call([command, path])
    assert (code, message.count("error:")) == (5, 1)
    if columns == 2**40:  # a list of its blocks would exceed the memory
        assert "manifest.json is damaged: no file has the size that it states" in message
