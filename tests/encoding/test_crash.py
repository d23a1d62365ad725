"""Interrupted and resumed: a crash loses nothing, and a resume trusts nothing."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from cec_mpi.errors import InputError, StoreError
from cec_mpi.store import open_store, verify
from cec_mpi.store.files.durable import locked
from cec_mpi.store.work import LocalRunner
from helpers.held import HeldSource
from helpers.stores import encode_blocks as encode
from helpers.waiting import LIMIT

X = np.random.default_rng(0).standard_normal((2000, 8))
SIZES = (5, 3)


class Interrupted(LocalRunner):
    """Stops after some pieces."""

    def __init__(self, pieces, error=KeyboardInterrupt):
        super().__init__(threads=1)
        self.processes = 1 << 20  # so that pieces are small
        self.left = pieces
        self.error = error

    def run(self, work):
        self.pieces, found = len(work.pieces), []
        for piece in work.pieces:
            if not self.left:
                raise self.error
            self.left -= 1
            found.append(work.do(piece))
        work.flush()
        return found


def contents(store):
    return {path.name: path.read_bytes() for path in store.iterdir()}


@pytest.fixture
def here(tmp_path):
    """An encode that was interrupted after three of its blocks, and what it should become."""
    np.save(tmp_path / "X.npy", X)
    encode(tmp_path / "X.npy", tmp_path / "whole", *SIZES)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        encode(tmp_path / "X.npy", tmp_path / "store", *SIZES, runner=Interrupted(3))
    (note,) = interrupted.value.__notes__
    assert "is incomplete, resume with: cec-mpi encode" in note
    return tmp_path


def resume(here, **options):
    return encode(here / "X.npy", here / "store", *SIZES, resume=True, **options)


def test_an_interrupted_encode_says_how_to_go_on_and_does(here):
    with pytest.raises(StoreError, match=r"store is incomplete, resume with: cec-mpi encode") as e:
        open_store(here / "store")
    assert e.value.exit_code == 2
    words = str(e.value).split("resume with: cec-mpi ")[1].split()
    with pytest.raises(InputError, match=r"exists and is incomplete: .*--resume"):
        encode(here / "X.npy", here / "store", *SIZES)
    subprocess.run([sys.executable, "-m", "cec_mpi", *words], check=True, timeout=LIMIT)
    assert contents(here / "store") == contents(here / "whole")


def test_only_what_is_missing_is_done(here):
    never = Interrupted(1000)
    resume(here, runner=never)
    assert never.pieces == open_store(here / "store").manifest.grid.count - 3


def test_blocks_that_did_not_reach_the_disk_are_done_again(here):
    """As after a loss of power: the journal is there, the data is not."""
    with (here / "store" / "shard-0004.npy").open("r+b") as file:
        file.seek(128 + 5000)
        file.write(bytes(20))
    resume(here)
    assert contents(here / "store") == contents(here / "whole")


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_resume_trusts_no_file_that_a_crash_may_have_spoilt(here, value):
    """Also where all blocks are alike, so that memory of one could pass for another."""
    np.save(here / "X.npy", np.full(X.shape, value))
    encode(here / "X.npy", here / "same", *SIZES)
    for k, spoil in enumerate(
        [
            lambda store: os.truncate(store / "shard-0002.npy", 5000),
            lambda store: os.truncate(store / "shard-0001.npy", 0),
            lambda store: (store / "shard-0003.npy").unlink(),
            lambda store: (store / "incomplete.sums").unlink(),
            lambda store: os.truncate(store / "incomplete.sums", 83),
            lambda store: [os.truncate(file, 0) for file in store.glob("shard-*")],
        ]
    ):
        store = here / f"store-{k}"
        with pytest.raises(KeyboardInterrupt):
            encode(here / "X.npy", store, *SIZES, runner=Interrupted(4))
        spoil(store)
        encode(here / "X.npy", store, *SIZES, resume=True)
        assert contents(store) == contents(here / "same")


def test_resumed_again_and_again_with_other_threads(here):
    for k in range(3):
        with pytest.raises(KeyboardInterrupt):
            resume(here, runner=Interrupted(k + 1))
    resume(here, runner=LocalRunner(threads=4))
    assert contents(here / "store") == contents(here / "whole")


def test_with_nothing_to_resume_it_starts_again(here):
    shutil.rmtree(here / "store")
    resume(here)
    assert contents(here / "store") == contents(here / "whole")
    # As a batch script does that was started again, after a kill between manifest and journal.
    for name in ("incomplete.json", "incomplete.sums"):
        (here / "store" / name).write_text("")
    resume(here)
    assert contents(here / "store") == contents(here / "whole")
    with pytest.raises(InputError, match="started with seed 0, not 1"):
        resume(here, seed=1)
    np.save(here / "X.npy", X + 1)
    with pytest.raises(InputError, match=r"X\.npy has changed since"):
        resume(here)
    (here / "store" / "source.json").unlink()
    with pytest.raises(InputError, match="is complete: there is nothing to resume"):
        resume(here)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 7}, "started with seed 0, not 7"),
        ({"dtype": "float32"}, "started with dtype None, not float32"),
        ({"systematic": True}, "started with systematic False, not True"),
    ],
)
def test_other_arguments_are_refused(here, options, message):
    with pytest.raises(InputError, match=message):
        resume(here, **options)
    with pytest.raises(InputError, match="started with machines 5, not 6"):
        encode(here / "X.npy", here / "store", 6, 3, resume=True)
    np.save(here / "X.npy", X + 1)
    with pytest.raises(InputError, match=r"X\.npy has changed since .*store was started"):
        resume(here)


@pytest.mark.parametrize("name", ["source.json", "incomplete.manifest.json"])
def test_a_damaged_journal_is_named(here, name):
    (here / "store" / name).write_text("{")
    with pytest.raises(InputError, match="its journal is damaged: remove it"):
        resume(here)


def test_a_directory_of_somebody_else_is_not_resumed(here):
    (here / "mine").mkdir()
    (here / "mine" / "letter").write_text("dear")
    with pytest.raises(InputError, match="exists, but is not an incomplete store"):
        encode(here / "X.npy", here / "mine", *SIZES, resume=True)
    assert [path.name for path in (here / "mine").iterdir()] == ["letter"]
    (here / "empty").mkdir()
    encode(here / "X.npy", here / "empty", *SIZES, resume=True)
    assert contents(here / "empty") == contents(here / "whole")
    with pytest.raises(InputError, match="is not a directory: there is nothing to resume"):
        encode(here / "X.npy", here / "X.npy", *SIZES, resume=True)


def test_what_cannot_be_written_says_how_to_go_on(here):
    error = OSError(28, "No space left on device")
    with pytest.raises(InputError, match=r"No space left on device; .*resume with: cec-mpi encode"):
        resume(here, runner=Interrupted(1, error))
    resume(here)
    assert contents(here / "store") == contents(here / "whole")


def test_what_was_abandoned_before_it_had_its_name_is_removed(here):
    (here / ".new store.new-123").mkdir()
    (here / ".new store.new-123" / "shard-0001.npy").write_text("")
    (here / ".new store.new-456").mkdir()
    (here / ".new store.new-789").mkdir()
    (here / ".new store.new-789" / "letter").write_text("dear")
    (here / ".new store.new-precious").mkdir()
    with locked(here / ".new store.new-456", "this is going on"):
        encode(here / "X.npy", here / "new store", *SIZES)
    assert contents(here / "new store") == contents(here / "whole")
    left = sorted(path.name.removeprefix(".new store.new-") for path in here.glob(".*"))
    assert left == ["456", "789", "precious"]


def test_a_signal_ends_encode_with_one_line(tmp_path):
    source = HeldSource(tmp_path)
    words = ["encode", source.path, tmp_path / "store", "--machines", "6", "--recovery", "3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cec_mpi", *map(str, words)], stderr=subprocess.PIPE, text=True
    )
    pipe = source.await_reader()
    process.send_signal(signal.SIGTERM)
    source.let_go(pipe)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGTERM
    [line] = [
        each for each in errors.splitlines() if " lacks 1 of " not in each
    ]  # a pipe, no chunk
    assert "is incomplete, resume with: cec-mpi encode" in line


def test_a_full_disk_is_an_error_before_anything_is_made(tmp_path, monkeypatch):
    np.save(tmp_path / "X.npy", X)
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 9, 1000))
    with pytest.raises(InputError, match=r"store needs \d+ bytes, but .* has only 1000 bytes free"):
        encode(tmp_path / "X.npy", tmp_path / "store", *SIZES)
    assert [path.name for path in tmp_path.iterdir()] == ["X.npy"]


def test_a_shape_that_no_disk_has_room_for_is_refused_at_once(tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "X.zarr", shape=(10**13, 37), chunks=(10**9, 37), dtype="f8")
    with pytest.raises(InputError, match=r"store needs \d+ bytes, but .* has only \d+ bytes free"):
        encode(tmp_path / "X.zarr", tmp_path / "store", *SIZES)
    assert [path.name for path in tmp_path.iterdir()] == ["X.zarr"]


def test_a_disk_that_fills_up(tmp_path):
    """A file system of its own: existing files stay, and more space is enough to go on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(disk)]
    if subprocess.run(size, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((4000, 50)))
        (disk / "other").write_bytes(bytes(1 << 20))
        words = [tmp_path / "X.npy", disk / "store", "--machines", "5", "--recovery", "3"]
        command = [sys.executable, "-m", "cec_mpi", "encode", *map(str, words)]
        program = (
            "import shutil, sys; from cec_mpi.cli import main;"
            "usage = type(shutil.disk_usage('/'));"
            "shutil.disk_usage = lambda path: usage(10**9, 0, 10**9);"  # as if another wrote too
            "sys.exit(main(sys.argv[1:]))"
        )
        blind = [sys.executable, "-c", program, "encode", *map(str, words)]
        done = subprocess.run(blind, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 2
        assert "No space left on device; " in done.stderr
        assert "resume with: cec-mpi encode" in done.stderr
        assert (disk / "other").stat().st_size == 1 << 20
        (disk / "other").unlink()
        done = subprocess.run([*command, "--resume"], timeout=LIMIT, check=False)
        assert done.returncode == 0
        assert verify(disk / "store").damaged == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
