"""Copies of shards in a cache: found again, compared, removed, and done without."""

import os
import resource
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest

from cec_mpi import add_machine, encode, open_operator, repair
from cec_mpi.errors import DamagedStoreError, InputError, SlowWarning
from cec_mpi.runtime.processes.launcher import remove_launcher_variables
from helpers.recording import Kept
from helpers.sparse import sparse
from helpers.waiting import LIMIT

MACHINES, ROWS, COLUMNS = 3, 300, 100
SHARD = 128 + 8 * ROWS * COLUMNS // 2  # bytes


def matrix(seed=0):
    return np.random.default_rng(seed).standard_normal((ROWS, COLUMNS))


@pytest.fixture(params=["code", "copies"])
def store(request, tmp_path):
    """A store of a code, or of copies; with its X."""
    X = matrix() if request.param == "code" else sparse(ROWS, COLUMNS)
    more = {"recovery": 2} if request.param == "code" else {"copies": 2}
    encode(X, tmp_path / "store", MACHINES, **more)
    return tmp_path / "store", X


def coded(path, seed=0):
    encode(matrix(seed), path, MACHINES, 2)
    return path


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "disk" / "cache"


def spoil(path):
    """Change a byte of a file, and keep its size."""
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def copies(cache):
    return sorted(cache.glob("*/*/shard-*"))


def files(cache):
    """All files in a cache, with those that a killed process leaves."""
    return {path for path in cache.rglob("*") if path.is_file()}


def product(store, cache, X=None, recorder=None, **options):
    """Multiply, compare with X, and return the header of the records."""
    recorder = recorder or Kept()
    with open_operator(store, recorder=recorder, cache=cache, **options) as operator:
        found = operator @ np.ones(COLUMNS)
    np.testing.assert_allclose(found, (matrix() if X is None else X) @ np.ones(COLUMNS), atol=1e-9)
    return recorder.common


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SlowWarning)
        yield


def test_each_machine_copies_its_shard_and_finds_it_again(store, cache):
    path, X = store
    header = product(path, cache, X)
    made = copies(cache)
    assert [copy.name for copy in made] != []
    assert sorted(copy.name for copy in made) == sorted(p.name for p in path.glob("shard-*"))
    assert header["cache"] == str(cache)
    assert header["machines_with_copies"] == [1, 2, 3]
    assert header["shard_files"][1:] == sorted(map(str, made), key=lambda name: name[-10:])
    before = {copy: copy.stat() for copy in made}
    for shard in path.glob("shard-*"):
        spoil(shard)  # nobody reads it
    product(path, cache, X)
    assert {copy: copy.stat().st_mtime_ns for copy in copies(cache)} == {
        copy: found.st_mtime_ns for copy, found in before.items()
    }
    with pytest.raises(DamagedStoreError), open_operator(path) as operator:
        operator @ np.ones(COLUMNS)


@pytest.mark.parametrize("options", [{"shards": "ram"}, {"verify": "never"}])
def test_a_damaged_copy_is_made_again(store, cache, options):
    path, X = store
    product(path, cache, X, **options)
    spoiled, cut, gone = copies(cache)
    right = spoiled.read_bytes(), cut.read_bytes()
    spoil(spoiled)
    os.truncate(cut, 100)
    gone.unlink()
    product(path, cache, X, **options)
    assert (spoiled.read_bytes(), cut.read_bytes()) == right
    assert len(copies(cache)) == MACHINES


def test_another_store_or_encoding_is_not_served_old_copies(tmp_path, cache):
    path = coded(tmp_path / "store")
    product(path, cache)
    shutil.rmtree(path)
    coded(path, seed=1)
    product(path, cache, matrix(1))
    assert len(copies(cache)) == 2 * MACHINES
    coded(tmp_path / "again", seed=1)  # whose shards are the same
    product(tmp_path / "again", cache, matrix(1))
    assert len(copies(cache)) == 2 * MACHINES
    spoil(path / "shard-0002.npy")
    repair(path)  # to other bytes than those of encode
    product(path, cache, matrix(1))
    add_machine(path)
    product(path, cache, matrix(1))
    assert len({copy.name for copy in copies(cache)}) == MACHINES + 1


def test_shards_of_the_same_bytes_and_another_shape_are_different(tmp_path, cache):
    for shape in ((COLUMNS, 20), (20, COLUMNS)):
        path = tmp_path / f"store-{shape[0]}"
        encode(np.zeros(shape), path, 2, 2)
        with open_operator(path, cache=cache) as X:
            assert (X @ np.ones(shape[1])).shape == shape[:1]
    assert len(copies(cache)) == 4


def test_the_least_recently_used_copies_are_removed(tmp_path, cache):
    first, second, third = (coded(tmp_path / str(k), k) for k in range(3))
    limit = 2 * MACHINES * SHARD
    product(first, cache, cache_limit=limit)
    old = copies(cache)
    product(second, cache, matrix(1), cache_limit=limit)
    product(first, cache, cache_limit=limit)
    assert len(copies(cache)) == 2 * MACHINES
    product(third, cache, matrix(2), cache_limit=limit)
    assert len(copies(cache)) == 2 * MACHINES
    assert set(old) < set(copies(cache))
    product(third, cache, matrix(2), cache_limit=MACHINES * SHARD)
    assert len(copies(cache)) == MACHINES


def test_a_copy_in_use_is_not_removed(tmp_path, cache):
    first, second = coded(tmp_path / "first"), coded(tmp_path / "second", 1)
    limit = (2 * MACHINES - 1) * SHARD
    with open_operator(first, cache=cache, cache_limit=limit) as operator:
        used = set(copies(cache))
        with pytest.warns(SlowWarning, match=r"machine 3 .* in the store.*--cache-limit"):
            header = product(second, cache, matrix(1), cache_limit=limit)
        assert header["machines_with_copies"] == [1, 2]
        assert used < set(copies(cache))
        assert sum(copy.stat().st_size for copy in copies(cache)) <= limit
        np.testing.assert_allclose(operator @ np.ones(COLUMNS), matrix() @ np.ones(COLUMNS))
    product(second, cache, matrix(1), cache_limit=limit)
    assert not used <= set(copies(cache))


def no_directory(cache):
    cache.parent.mkdir()
    cache.touch()


def others_may_write(cache):
    product(cache.parent.parent / "store", cache)
    next(cache.iterdir()).chmod(0o777)


def a_link(cache):
    elsewhere = cache.parent.parent / "elsewhere"
    elsewhere.mkdir()
    cache.mkdir(parents=True)
    (cache / f"cec_mpi-{os.geteuid()}").symlink_to(elsewhere)


@pytest.mark.parametrize("make", [no_directory, others_may_write, a_link])
def test_without_a_place_for_copies_the_store_is_read(make, tmp_path, cache):
    path = coded(tmp_path / "store")
    make(cache)
    before = files(tmp_path)
    with pytest.warns(
        SlowWarning, match=r"machine 1 .*cannot be copied to .* \(and 2 more\)"
    ) as said:
        header = product(path, cache)
    assert len(said) == 1
    assert header["machines_with_copies"] == []
    assert files(tmp_path) == before


def test_a_limit_below_the_size_of_a_shard_and_a_full_disk(tmp_path, cache, monkeypatch):
    path = coded(tmp_path / "store")
    with pytest.warns(SlowWarning, match=f"--cache-limit is 1000 bytes, the shard has {SHARD}"):
        product(path, cache, cache_limit=1000)
    assert copies(cache) == []
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.warns(SlowWarning, match="has only 1000 bytes free"):
        product(path, cache)
    assert files(cache) == set()


def in_process(store, cache, before="", limit_size=None):
    """Multiply in another process, which first runs some lines."""
    program = f"""
import os, signal, sys
import numpy as np
from cec_mpi import open_operator
{before}
with open_operator({str(store)!r}, cache={str(cache)!r}) as X:
    sys.stdout.write(repr(float((X @ np.ones({COLUMNS})).sum())))
"""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=remove_launcher_variables(os.environ),
        preexec_fn=limit_size,
    )


def ended(process):
    out, err = process.communicate(timeout=LIMIT)
    return process.returncode, out, err


def test_a_disk_that_fills_up_while_a_shard_is_copied(tmp_path, cache):
    path = coded(tmp_path / "store")
    most = SHARD // 2
    code, out, err = ended(
        in_process(
            path,
            cache,
            limit_size=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )
    )
    assert code == 0, err
    assert float(out) == pytest.approx(matrix().sum())
    assert err.count("SlowWarning:") == 1
    assert "File too large" in err
    assert files(cache) == set()


def test_a_killed_copy_is_not_taken_for_whole_and_is_removed(tmp_path, cache):
    path = coded(tmp_path / "store")
    kill = "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)"
    assert ended(in_process(path, cache, kill))[0] < 0
    assert copies(cache) == []
    assert [file for file in files(cache) if ".partial." in file.name]
    other = coded(tmp_path / "other", 1)
    product(other, cache, matrix(1))  # removes what the other has left
    assert not [file for file in files(cache) if ".partial." in file.name]
    product(path, cache)
    assert len(copies(cache)) == 2 * MACHINES


def test_processes_that_copy_at_once_share_one_right_copy(tmp_path, cache):
    path = coded(tmp_path / "store")
    go = tmp_path / "go"
    wait = f"import time, pathlib\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    processes = [in_process(path, cache, wait) for _ in range(4)]
    go.touch()
    for process in processes:
        code, out, err = ended(process)
        assert code == 0, err
        assert err == ""
        assert float(out) == pytest.approx(matrix().sum())
    assert sorted(copy.name for copy in copies(cache)) == sorted(
        shard.name for shard in path.glob("shard-*")
    )
    for copy in copies(cache):
        assert copy.read_bytes() == (path / copy.name).read_bytes()


def test_a_copy_that_is_a_link_is_replaced_and_not_followed(tmp_path, cache):
    path = coded(tmp_path / "store")
    product(path, cache)
    copy = copies(cache)[0]
    kept = tmp_path / "kept"
    shutil.copy(copy, kept)
    copy.unlink()
    copy.symlink_to(kept)
    product(path, cache)
    assert not copy.is_symlink()
    assert kept.read_bytes() == copy.read_bytes()


def test_damage_of_the_store_is_reported_as_without_a_cache(tmp_path, cache):
    path = coded(tmp_path / "store")
    spoil(path / "shard-0002.npy")
    with (
        pytest.warns(SlowWarning, match=r"shard-0002.npy: rows 0\.\.149 do not match"),
        pytest.raises(DamagedStoreError, match=r"store/shard-0002.npy: rows .*\(cec-mpi repair"),
        open_operator(path, cache=cache) as X,
    ):
        X @ np.ones(COLUMNS)
    (path / "shard-0002.npy").unlink()
    with (
        pytest.raises(DamagedStoreError, match=r"shard-0002.npy: missing"),
        open_operator(path, cache=cache),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": 3}, "expected a str or os.PathLike"),
        ({"cache": ""}, "expected the name of a file or directory"),
        ({"cache_limit": 5}, "cache_limit=SIZE needs cache=DIR"),
        ({"cache": "{tmp}/store/c"}, "is inside the store .*: expected a directory elsewhere"),
        ({"cache": "c", "cache_limit": 0}, "expected at least 1 byte"),
        ({"cache": "c", "cache_limit": "2G"}, "expected a whole number"),
    ],
)
def test_options_that_are_wrong(tmp_path, options, message):
    path = coded(tmp_path / "store")
    if isinstance(options.get("cache"), str):
        options = options | {"cache": options["cache"].replace("{tmp}", str(tmp_path))}
    with pytest.raises(InputError, match=message), open_operator(path, **options):
        pass


def test_the_name_of_the_computer_in_the_directory(tmp_path, monkeypatch):
    path = coded(tmp_path / "store")
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    product(path, tmp_path / "{host}")
    assert len(copies(tmp_path / "node7")) == MACHINES
