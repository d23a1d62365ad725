"""An interrupted encode loses nothing, and a resumed one trusts nothing."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import zarr

from cec_mpi.errors import InputError, StoreError
from cec_mpi.store import open_store
from cec_mpi.store.files.durable import locked
from helpers.blocking_source import BlockingSource
from helpers.stores import InterruptedRunner, read_files
from helpers.stores import encode_blocks as encode
from helpers.waiting import LIMIT

X = np.random.default_rng(0).standard_normal((2000, 8))
SIZES = (5, 3)


@pytest.fixture
def directory(tmp_path):
    """A complete store, and one whose encode was interrupted after three blocks."""
    np.save(tmp_path / "X.npy", X)
    encode(tmp_path / "X.npy", tmp_path / "complete", *SIZES)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        encode(tmp_path / "X.npy", tmp_path / "store", *SIZES, runner=InterruptedRunner(3))
    (note,) = interrupted.value.__notes__
    assert "is incomplete, resume with: cec-mpi encode" in note
    return tmp_path


def resume(directory, store="store", **options):
    return encode(directory / "X.npy", directory / store, *SIZES, resume=True, **options)


def test_an_interrupted_encode_names_the_command_that_resumes_it(directory):
    with pytest.raises(StoreError, match=r"store is incomplete, resume with: cec-mpi encode") as e:
        open_store(directory / "store")
    assert e.value.exit_code == 2
    arguments = str(e.value).split("resume with: cec-mpi ")[1].split()
    with pytest.raises(InputError, match=r"exists and is incomplete: .*--resume"):
        encode(directory / "X.npy", directory / "store", *SIZES)
    subprocess.run([sys.executable, "-m", "cec_mpi", *arguments], check=True, timeout=LIMIT)
    assert read_files(directory / "store") == read_files(directory / "complete")


def test_only_missing_blocks_are_encoded_in_any_number_of_resumes(directory):
    count = open_store(directory / "complete").manifest.grid.count
    for pieces in (1, 15 + 2):  # 15 pieces verify the files
        with pytest.raises(KeyboardInterrupt):
            resume(directory, runner=InterruptedRunner(pieces))
    runner = InterruptedRunner(1000)
    resume(directory, runner=runner)
    assert runner.pieces == count - 3 - 2
    assert read_files(directory / "store") == read_files(directory / "complete")


def overwrite_block(store):
    with (store / "shard-0004.npy").open("r+b") as file:
        file.seek(128 + 5000)
        file.write(bytes(20))


@pytest.mark.parametrize(
    "damage",
    [
        overwrite_block,
        lambda store: os.truncate(store / "shard-0002.npy", 5000),
        lambda store: os.truncate(store / "shard-0001.npy", 0),
        lambda store: (store / "shard-0003.npy").unlink(),
        lambda store: (store / "incomplete.sums").unlink(),
        lambda store: os.truncate(store / "incomplete.sums", 83),
        lambda store: [os.truncate(file, 0) for file in store.glob("shard-*")],
    ],
)
def test_blocks_and_records_that_a_crash_has_damaged_are_written_again(directory, damage):
    for name, value in (("random", X), ("zeros", 0 * X), ("ones", 0 * X + 1)):
        # If all blocks are equal, one must not be taken for another.
        np.save(directory / "X.npy", value)
        with pytest.raises(KeyboardInterrupt):
            encode(directory / "X.npy", directory / name, *SIZES, runner=InterruptedRunner(4))
        damage(directory / name)
        resume(directory, name)
        encode(directory / "X.npy", directory / f"complete {name}", *SIZES)
        assert read_files(directory / name) == read_files(directory / f"complete {name}")


def test_resume_also_starts_an_encode_or_checks_a_complete_store(directory):
    (directory / "empty").mkdir()
    for name in ("new", "empty"):
        resume(directory, name)
        assert read_files(directory / name) == read_files(directory / "complete")
    # The encode was killed after it had written the manifest.
    for name in ("incomplete.json", "incomplete.sums"):
        (directory / "new" / name).write_text("")
    resume(directory, "new")
    assert read_files(directory / "new") == read_files(directory / "complete")
    (directory / "new" / "source.json").unlink()
    with pytest.raises(InputError, match="is complete: there is nothing to resume"):
        resume(directory, "new")


@pytest.mark.parametrize("store", ["store", "complete"])
def test_a_resume_needs_the_same_x_and_arguments(directory, store):
    for options, message in (
        ({"seed": 7}, "started with seed 0, not 7"),
        ({"dtype": "float32"}, "started with dtype None, not float32"),
        ({"systematic": True}, "started with systematic False, not True"),
    ):
        with pytest.raises(InputError, match=message):
            resume(directory, store, **options)
    np.save(directory / "X.npy", X + 1)
    with pytest.raises(InputError, match=r"X\.npy has changed since .* was started"):
        resume(directory, store)


def test_only_an_undamaged_incomplete_store_is_resumed(directory):
    (directory / "mine").mkdir()
    (directory / "mine" / "letter").write_text("dear")
    for name, message in (
        ("mine", "exists, but is not an incomplete store"),
        ("X.npy", "is not a directory: there is nothing to resume"),
        ("no/store", "no is not a directory"),
    ):
        with pytest.raises(InputError, match=message):
            resume(directory, name)
    assert [path.name for path in (directory / "mine").iterdir()] == ["letter"]
    for name in ("incomplete.manifest.json", "source.json"):
        (directory / "store" / name).write_text("{")
        with pytest.raises(InputError, match="its journal is damaged: remove it"):
            resume(directory)


def test_only_abandoned_temporary_directories_are_removed(directory):
    for name in ("123", "456", "789", "precious"):
        (directory / f".new store.new-{name}").mkdir()
    (directory / ".new store.new-123" / "shard-0001.npy").write_text("")
    (directory / ".new store.new-789" / "letter").write_text("dear")
    with locked(directory / ".new store.new-456", "it is in use"):
        encode(directory / "X.npy", directory / "new store", *SIZES)
    assert read_files(directory / "new store") == read_files(directory / "complete")
    remaining = sorted(path.name.removeprefix(".new store.new-") for path in directory.glob(".*"))
    assert remaining == ["456", "789", "precious"]


def test_a_signal_ends_encode_with_one_line(tmp_path):
    source = BlockingSource(tmp_path)
    arguments = ["encode", source.path, tmp_path / "store", "--machines", "6", "--recovery", "3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cec_mpi", *map(str, arguments)], stderr=subprocess.PIPE, text=True
    )
    pipe = source.await_reader()
    process.send_signal(signal.SIGTERM)
    source.release(pipe)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGTERM
    # Zarr does not count the pipe as a chunk.
    [line] = [line for line in errors.splitlines() if " lacks 1 of " not in line]
    assert "is incomplete, resume with: cec-mpi encode" in line


# --- full disks ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["X.npy", "X.zarr"])
def test_a_store_larger_than_the_free_space_is_refused_at_once(tmp_path, monkeypatch, name):
    if name == "X.npy":
        np.save(tmp_path / name, X)
        usage = type(shutil.disk_usage("/"))(10, 9, 1000)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    else:
        zarr.create_array(tmp_path / name, shape=(10**13, 37), chunks=(10**9, 37), dtype="f8")
    with pytest.raises(InputError, match=r"store needs \d+ bytes, but .* has only \d+ bytes free"):
        encode(tmp_path / name, tmp_path / "store", *SIZES)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_full_disk_before_or_during_the_encode_is_named(directory, monkeypatch):
    full = OSError(28, "No space left on device")
    with pytest.raises(InputError, match=r"No space left on device; .*resume with: cec-mpi encode"):
        resume(directory, runner=InterruptedRunner(1, full))
    resume(directory)
    assert read_files(directory / "store") == read_files(directory / "complete")

    def pwrite(*_):
        raise full

    monkeypatch.setattr(os, "pwrite", pwrite)
    (directory / "X.csv").write_text("1,2\n3,4\n")
    for source in ("X.npy", "X.csv"):
        with pytest.raises(InputError, match=r"new cannot be written: No space left on device$"):
            encode(directory / source, directory / "new", *SIZES)
    names = sorted(path.name for path in directory.iterdir())
    assert names == ["X.csv", "X.npy", "complete", "store"]
