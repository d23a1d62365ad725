"""Links in stores and runs: files are never written through them."""

import fcntl
import os
import shutil

import numpy as np
import pytest

from cec_mpi import encode
from cec_mpi.cli import main
from cec_mpi.errors import InputError
from cec_mpi.store import add_machine, decode, open_store, repair, verify
from cec_mpi.store.files.durable import publish, replace_by_link
from cec_mpi.store.files.replacing import partial_path
from helpers.stores import (
    InterruptedRunner,
    encode_blocks,
    encode_in_small_blocks,
    publish_matching_checksums,
    read_files,
)

MACHINES, RECOVERY, ROWS, COLUMNS = 5, 2, 300, 100
X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
PRECIOUS = b"not yours " * 20_000  # larger than a shard


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store of many small blocks."""
    return encode_in_small_blocks(tmp_path_factory.mktemp("template"), X, MACHINES, RECOVERY)


@pytest.fixture
def path(template, tmp_path, no_launcher):
    return shutil.copytree(template, tmp_path / "store")


@pytest.fixture
def precious(tmp_path):
    """A file outside the store, which must not change."""
    file = tmp_path / "precious"
    file.write_bytes(PRECIOUS)
    yield file
    assert file.read_bytes() == PRECIOUS


def link(name, target):
    name.unlink(missing_ok=True)
    name.symlink_to(target)


def move_and_link(path, machine, tmp_path):
    """Move a shard out of the store, and replace it by a link."""
    file = path / f"shard-{machine:04d}.npy"
    target = tmp_path / f"moved-{machine}.npy"
    file.rename(target)
    link(file, target)
    return target


def damage(file):
    with file.open("r+b") as stream:
        stream.seek(128 + 8 * COLUMNS * 100)
        stream.write(bytes(8))


# --- the files of a store -----------------------------------------------------------------


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_repair_replaces_a_link_instead_of_writing_through_it(path, precious, make, capsys):
    file = path / "shard-0002.npy"
    file.unlink()
    make(precious, file)
    assert main(["repair", str(path)]) == 0
    output = capsys.readouterr().out
    kind = f"a link to {precious}" if make is os.symlink else "one of 2 hard links to a file"
    assert f"shard-0002.npy: replaced {kind} with" in output
    assert not file.is_symlink()
    assert file.stat().st_nlink == 1
    assert verify(path).damaged == []


def test_a_good_shard_behind_a_link_is_kept(path, tmp_path, capsys):
    target = move_and_link(path, 3, tmp_path)
    assert verify(path).damaged == []
    assert main(["repair", str(path)]) == 0
    assert "nothing to repair" in capsys.readouterr().out
    assert (path / "shard-0003.npy").readlink() == target
    assert np.allclose(open_store(path).shard(3), np.load(target))


def test_a_damaged_shard_behind_a_link_is_repaired_in_the_store(path, tmp_path, capsys):
    target = move_and_link(path, 3, tmp_path)
    damage(target)
    before = target.read_bytes()
    assert main(["repair", str(path)]) == 0
    output = capsys.readouterr().out
    assert f"shard-0003.npy: replaced a link to {target}" in output
    assert "shard-0003.npy: rows 100..104 rebuilt" in output  # other rows were copied
    assert target.read_bytes() == before
    assert not (path / "shard-0003.npy").is_symlink()
    assert verify(path).damaged == []


def test_a_wrong_shard_behind_a_link_is_rebuilt_in_the_store(path, tmp_path):
    """Its checksums match, so only the comparison of shards finds it."""
    target = move_and_link(path, 3, tmp_path)
    wrong = np.load(target)
    wrong[100] += 1
    np.save(target, wrong)
    publish_matching_checksums(path, 3)
    assert verify(path).damaged == []
    result = repair(path)
    assert result.faulty == (3,)
    assert result.replaced == {3: f"a link to {target}"}
    assert np.array_equal(np.load(target), wrong)
    assert not (path / "shard-0003.npy").is_symlink()
    decode(path, tmp_path / "again.npy")
    assert np.allclose(np.load(tmp_path / "again.npy"), X)


def test_no_operation_writes_through_a_link_in_a_store(path, precious):
    for name in ("manifest.copy.json", "checksums-2.npy", "checksums-3.npy", "shard-0006.npy"):
        link(path / name, precious)
    damage(path / "shard-0001.npy")
    repair(path)
    add_machine(path)
    assert not any(file.is_symlink() for file in path.iterdir())
    assert verify(path).damaged == []


def test_a_lock_that_is_a_link_is_refused(path, precious):
    link(path / ".lock", precious)
    with pytest.raises(InputError, match=r"\.lock is a link, expected a file: remove it"):
        repair(path)
    link(path / ".lock", path.parent / "nowhere")
    with pytest.raises(InputError, match=r"\.lock is a link"):
        repair(path)
    assert not (path.parent / "nowhere").exists()


def test_a_resumed_encode_writes_through_no_link(path, tmp_path, precious):
    new = tmp_path / "new"
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(KeyboardInterrupt):
        encode_blocks(
            tmp_path / "X.npy", tmp_path / "new", MACHINES, RECOVERY, runner=InterruptedRunner(2)
        )
    link(new / "shard-0002.npy", precious)
    link(new / "incomplete.sums", precious)
    encode(tmp_path / "X.npy", new, MACHINES, RECOVERY, resume=True)
    assert verify(new).damaged == []


# --- files that crashes leave -------------------------------------------------------------


def test_only_abandoned_temporary_files_are_removed(tmp_path, precious):
    abandoned, in_use, planted = (partial_path(tmp_path / "file") for _ in range(3))
    unrelated = tmp_path / ".file.partial.notes"
    for path in (abandoned, in_use, unrelated):
        path.write_bytes(b"x")
    link(planted, precious)
    with in_use.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        publish(tmp_path / "file", b"new")
    assert {path.name for path in tmp_path.glob(".*")} == {in_use.name, unrelated.name}
    assert (tmp_path / "file").read_bytes() == b"new"


def test_publish_does_not_change_other_names_of_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "backup").hardlink_to(tmp_path / "file")
    publish(tmp_path / "file", b"new")
    replace_by_link(tmp_path / "file", tmp_path / "before")
    publish(tmp_path / "file", b"newer")
    assert read_files(tmp_path) == {"file": b"newer", "backup": b"old", "before": b"new"}


# --- results of a run ---------------------------------------------------------------------


@pytest.fixture
def run(path, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((2, COLUMNS)))

    def run(*words):
        out = ["--out", str(tmp_path / "out"), f"vectors={tmp_path / 'W.npy'!s}"]
        return main(["run", str(path), *out, "--serial", *words])

    (tmp_path / "out" / "logs").mkdir(parents=True)
    return run


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_run_writes_through_no_link(run, tmp_path, precious, make):
    for name in ("logs/master.log", "steps.jsonl", "summary.json", "result.npy", "checkpoint.npz"):
        make(precious, tmp_path / "out" / name)
    assert run("--overwrite") == 0
    assert np.allclose(np.load(tmp_path / "out" / "result.npy"), X.sum(axis=1))


def test_a_link_in_place_of_the_logs_is_refused(run, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "logs").rmdir()
    link(tmp_path / "out" / "logs", tmp_path / "elsewhere")
    assert run() == 2
    assert "logs is a link: expected a directory" in capsys.readouterr().err
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_directory_of_results_may_be_a_link(run, tmp_path):
    (tmp_path / "out").rename(tmp_path / "real")
    link(tmp_path / "out", tmp_path / "real")
    assert run() == 0
    assert (tmp_path / "real" / "summary.json").is_file()


@pytest.mark.parametrize(("name", "make"), [("result.npy", os.symlink), ("steps.jsonl", os.link)])
def test_a_resumed_run_appends_to_no_linked_file(run, tmp_path, capsys, name, make):
    file = tmp_path / "out" / name
    (tmp_path / "a.json").write_text('{"available": [[1, 2], [1]]}')
    assert run("--checkpoint-every", "1", "--availability", str(tmp_path / "a.json")) == 4
    file.rename(tmp_path / "moved")
    make(tmp_path / "moved", file)
    before = (tmp_path / "moved").read_bytes()
    assert run("--resume") == 2
    assert "expected a file without links" in capsys.readouterr().err
    assert (tmp_path / "moved").read_bytes() == before
    file.unlink()
    (tmp_path / "moved").rename(file)
    assert run("--resume") == 0
