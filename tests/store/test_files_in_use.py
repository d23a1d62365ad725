"""Files of a store that are overwritten, replaced or truncated while they are in use."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import CecError, DamagedStoreError
from cec_mpi.store import open_store, repair, verify
from helpers.stores import encode_in_small_blocks

MACHINES, RECOVERY, ROWS, COLUMNS = 4, 2, 300, 100
X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
POSITION = 128 + 8 * COLUMNS * 100  # of row 100 of a shard


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store of many small blocks."""
    return encode_in_small_blocks(tmp_path_factory.mktemp("template"), X, MACHINES, RECOVERY)


@pytest.fixture
def path(template, tmp_path):
    return shutil.copytree(template, tmp_path / "store")


def overwrite(file):
    """Overwrite row 100 in place."""
    with file.open("r+b") as stream:
        stream.seek(POSITION)
        stream.write(np.full(COLUMNS, 1e3).tobytes())


def wait_for_file_clock():
    """Wait until the last change of a file is older than a step of its clock."""
    time.sleep(0.15)


@pytest.mark.parametrize("holding", ["mmap", "ram"])
def test_an_open_shard_ignores_a_file_that_gets_its_name(path, holding):
    file = path / "shard-0002.npy"
    expected = np.load(file)
    shard = open_store(path).open_shard(2, holding)
    shutil.copy(path / "shard-0001.npy", path / "other")
    (path / "other").rename(file)
    shard.load([(0, 150)])
    assert np.array_equal(shard.rows, expected)


def test_a_shard_that_is_overwritten_during_a_run_is_detected(path):
    with cec_mpi.open_operator(path, None, availability={1, 2}) as A:
        w = np.ones(COLUMNS)
        assert np.allclose(A @ w, X @ w)
        overwrite(path / "shard-0002.npy")
        with pytest.raises(
            DamagedStoreError, match=r"machine 2: .*shard-0002\.npy: rows 100\.\.104 do not match"
        ):
            A @ w


def test_a_run_with_shards_in_memory_ignores_a_changed_file(path):
    with cec_mpi.open_operator(path, None, shards="ram", availability={1, 2}) as A:
        w = np.ones(COLUMNS)
        assert np.allclose(A @ w, X @ w)
        overwrite(path / "shard-0002.npy")
        assert np.allclose(A @ w, X @ w)


def test_two_changes_within_a_clock_step_are_detected(path):
    """The second change does not change the times of the file."""
    (path / "shard-0002.npy").chmod(0o640)
    shard = open_store(path).open_shard(2)
    shard.load([(0, 150)])
    assert shard.has_changed()
    wait_for_file_clock()
    shard.has_changed()
    assert not shard.has_changed()


def test_a_later_write_through_a_memory_map_is_detected(path):
    """The second write to a dirty page does not change the times of the file."""
    file = path / "shard-0002.npy"
    shard = open_store(path).open_shard(2)
    mapped = np.load(file, mmap_mode="r+")
    mapped[100, 0] = mapped[100, 0]
    shard.load([(0, 150)])
    wait_for_file_clock()
    shard.has_changed()
    os.utime(file)  # a file system in memory does not update the times
    shard.has_changed()
    shard.load([(0, 150)])
    wait_for_file_clock()
    shard.has_changed()
    shard.load([(0, 150)])
    mapped[100, 0] += 1
    assert shard.has_changed()
    with pytest.raises(DamagedStoreError, match=r"rows 100\.\.104 do not match"):
        shard.load([(0, 150)])


@pytest.mark.parametrize("change", [os.utime, lambda file: file.chmod(0o640), os.unlink])
def test_changes_of_metadata_do_not_end_a_run(path, change):
    with cec_mpi.open_operator(path, None) as A:
        w = np.ones(COLUMNS)
        for _ in range(3):
            assert np.allclose(A @ w, X @ w)
            if (path / "shard-0002.npy").exists():
                change(path / "shard-0002.npy")
            assert np.allclose(A.H @ np.ones(ROWS), X.T @ np.ones(ROWS))


def test_a_shard_that_is_truncated_between_steps_is_damaged(path):
    with cec_mpi.open_operator(path, None, availability={1, 2}, verify="never") as A:
        A @ np.ones(COLUMNS)
        os.truncate(path / "shard-0002.npy", 5000)
        with pytest.raises(DamagedStoreError, match=r"shard-0002\.npy: 5000 bytes, expected 1201"):
            A @ np.ones(COLUMNS)


TRUNCATE = """
import os, sys
from pathlib import Path
import numpy as np
from cec_mpi.store import open_store
store = open_store(sys.argv[1])
store.shard(1)  # imports modules before the limit
shards = [store.open_shard(n) for n in (1, 2)]
for shard in shards:
    shard.load([(0, shard.row_count)])
os.truncate(Path(sys.argv[1]) / "shard-0002.npy", 5000)
W, out = np.ones((1, shards[1].rows.shape[1])), np.empty((shards[1].row_count, 1))
shards[1].multiply(W, [(0, shards[1].row_count)], out)
print("computed with missing rows")
"""


@pytest.mark.parametrize("options", [[], ["-X", "faulthandler"]])  # handles bus errors
def test_a_shard_that_is_truncated_during_a_product_is_named(path, run, options):
    process = run([sys.executable, *options, "-c", TRUNCATE, path])
    assert (process.returncode, process.stdout) == (3, "")
    (line,) = process.stderr.splitlines()
    assert "shard-0002.npy was truncated" in line
    assert line.endswith(": found 5000 bytes, expected 120128")


OTHER_MAP = """
import faulthandler, mmap, os, sys
from pathlib import Path
from cec_mpi.store import open_store
shard = open_store(sys.argv[1]).open_shard(1)
with open(sys.argv[2], "w+b") as file:
    file.truncate(1 << 16)
    mapped = mmap.mmap(file.fileno(), 1 << 16)
    file.truncate(0)
mapped[0]
"""


def test_bus_errors_of_other_files_are_not_handled(path, tmp_path, run):
    process = run([sys.executable, "-X", "faulthandler", "-c", OTHER_MAP, path, tmp_path / "other"])
    assert process.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in process.stderr
    assert "cec-mpi" not in process.stderr


# --- few file descriptors -----------------------------------------------------------------


@contextmanager
def spare_descriptors(count):
    """Leave only `count` free file descriptors to this process."""
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    descriptors = []
    try:
        with suppress(OSError):
            while True:
                descriptors.append(os.dup(0))
        for _ in range(count):
            os.close(descriptors.pop())
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 256, reason="few descriptors")
def test_a_store_can_have_more_shards_than_file_descriptors(tmp_path):
    program = (
        "import resource, sys, numpy as np, cec_mpi; cec_mpi.encode;"  # imported before the limit
        "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24));"
        "cec_mpi.encode(np.full((100, 3), 1 / 3), sys.argv[1], 60, 2)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "store"], check=True)
    with spare_descriptors(12), cec_mpi.open_operator(tmp_path / "store", None) as A:
        np.testing.assert_allclose(A @ np.ones(3), 1)


@pytest.mark.parametrize("spare", range(3))
@pytest.mark.parametrize("action", [verify, repair, lambda path: open_store(path).shard(1)])
def test_a_store_is_not_damaged_if_file_descriptors_run_out(path, action, spare, monkeypatch):
    monkeypatch.setattr("cec_mpi.store.files.regular.increase_file_limit", lambda: False)
    action(path)  # imports modules
    before = {file.name: file.stat().st_ino for file in path.iterdir()}
    with spare_descriptors(spare):
        try:
            result = action(path)
        except CecError as error:
            result = error
    if isinstance(result, CecError):
        assert not isinstance(result, DamagedStoreError)
        assert re.search(r"ulimit -n|Too many open files", str(result))
    assert not getattr(result, "damaged", None)
    assert not getattr(result, "rebuilt", None)
    assert verify(path).damaged == []
    assert {file.name: file.stat().st_ino for file in path.iterdir()} == before


def test_a_run_without_file_descriptors_names_the_limit(path, tmp_path, run):
    np.save(tmp_path / "W.npy", np.ones((2, COLUMNS)))
    words = f"run {path} --out {tmp_path / 'out'} vectors={tmp_path / 'W.npy'} --serial"
    process = run(["bash", "-c", f"ulimit -n 7; exec {sys.executable} -m cec_mpi {words}"])
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "this process uses all 7 of its file descriptors" in process.stderr
    assert "ulimit -n" in process.stderr
