"""Copies of shards in a cache."""

import multiprocessing
import os
import resource
import shutil
import signal
import warnings

import numpy as np
import pytest

from cec_mpi import add_machine, encode, open_operator, repair
from cec_mpi.errors import DamagedStoreError, InputError, SlowWarning
from helpers.recording import MemoryRecorder
from helpers.sparse import random_sparse
from helpers.waiting import LIMIT

MACHINES, ROWS, COLUMNS = 3, 300, 100
SHARD_SIZE = 128 + 8 * ROWS * COLUMNS // 2  # bytes


def matrix(seed=0):
    return np.random.default_rng(seed).standard_normal((ROWS, COLUMNS))


def make_store(path, seed=0):
    encode(matrix(seed), path, MACHINES, 2)
    return path


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "disk" / "cache"


def flip_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def list_copies(cache):
    return sorted(cache.glob("*/*/shard-*"))


def list_files(directory):
    return {path for path in directory.rglob("*") if path.is_file()}


def check_product(store, cache, X=None, **options):
    """Compare a product with that of X, and return the header of the records."""
    recorder = MemoryRecorder()
    with open_operator(store, recorder=recorder, cache=cache, **options) as operator:
        product = operator @ np.ones(COLUMNS)
    X = matrix() if X is None else X
    np.testing.assert_allclose(product, X @ np.ones(COLUMNS), atol=1e-9)
    return recorder.header


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SlowWarning)
        yield


@pytest.mark.parametrize("is_sparse", [False, True])
def test_each_machine_copies_its_shard_and_reads_the_copy(tmp_path, cache, is_sparse):
    X, path = random_sparse(ROWS, COLUMNS) if is_sparse else matrix(), tmp_path / "store"
    encode(X, path, MACHINES, **({"copies": 2} if is_sparse else {"recovery": 2}))
    header = check_product(path, cache, X)
    copy_paths = list_copies(cache)
    assert sorted(copy.name for copy in copy_paths) == sorted(p.name for p in path.glob("shard-*"))
    assert header["cache"] == str(cache)
    assert header["machines_with_copies"] == [1, 2, 3]
    assert header["shard_files"][1:] == sorted(map(str, copy_paths), key=lambda name: name[-10:])
    times = [copy.stat().st_mtime_ns for copy in copy_paths]
    for shard in path.glob("shard-*"):
        flip_bit(shard)
    check_product(path, cache, X)
    assert [copy.stat().st_mtime_ns for copy in list_copies(cache)] == times


@pytest.mark.parametrize("options", [{"shards": "ram"}, {"verify": "never"}])
def test_invalid_copies_are_replaced(store, cache, tmp_path, options):
    check_product(store, cache, **options)
    damaged_copy, short_copy, linked_copy = list_copies(cache)
    target = shutil.copy(linked_copy, tmp_path / "target")
    contents = [copy.read_bytes() for copy in list_copies(cache)]
    flip_bit(damaged_copy)
    os.truncate(short_copy, 100)
    linked_copy.unlink()
    linked_copy.symlink_to(target)
    check_product(store, cache, **options)
    assert [copy.read_bytes() for copy in list_copies(cache)] == contents
    assert not linked_copy.is_symlink()


def test_copies_belong_to_the_content_of_shards(tmp_path, store, cache):
    check_product(store, cache)
    shutil.rmtree(store)
    make_store(store, seed=1)
    check_product(store, cache, matrix(1))
    assert len(list_copies(cache)) == 2 * MACHINES
    check_product(make_store(tmp_path / "again", seed=1), cache, matrix(1))  # the same shards
    assert len(list_copies(cache)) == 2 * MACHINES
    flip_bit(store / "shard-0002.npy")
    repair(store)  # with bytes that differ from those of encode
    check_product(store, cache, matrix(1))
    add_machine(store)
    check_product(store, cache, matrix(1))
    assert len({copy.name for copy in list_copies(cache)}) == MACHINES + 1
    before = len(list_copies(cache))
    for shape in ((COLUMNS, 20), (20, COLUMNS)):  # the same bytes
        path = tmp_path / f"store-{shape[0]}"
        encode(np.zeros(shape), path, 2, 2)
        with open_operator(path, cache=cache) as X:
            assert (X @ np.ones(shape[1])).shape == shape[:1]
    assert len(list_copies(cache)) == before + 4


def test_the_least_recently_used_copies_are_removed(tmp_path, store, cache):
    second, third = (make_store(tmp_path / str(seed), seed) for seed in (1, 2))
    limit = 2 * MACHINES * SHARD_SIZE
    check_product(store, cache, cache_limit=limit)
    old_copies = list_copies(cache)
    check_product(second, cache, matrix(1), cache_limit=limit)
    check_product(store, cache, cache_limit=limit)
    check_product(third, cache, matrix(2), cache_limit=limit)
    assert len(list_copies(cache)) == 2 * MACHINES
    assert set(old_copies) < set(list_copies(cache))
    check_product(third, cache, matrix(2), cache_limit=MACHINES * SHARD_SIZE)
    assert len(list_copies(cache)) == MACHINES


def test_a_copy_in_use_is_not_removed(tmp_path, store, cache):
    second = make_store(tmp_path / "second", 1)
    limit = (2 * MACHINES - 1) * SHARD_SIZE
    with open_operator(store, cache=cache, cache_limit=limit) as operator:
        used_copies = set(list_copies(cache))
        with pytest.warns(SlowWarning, match=r"machine 3 .* from the store.*--cache-limit"):
            header = check_product(second, cache, matrix(1), cache_limit=limit)
        assert header["machines_with_copies"] == [1, 2]
        assert used_copies < set(list_copies(cache))
        assert sum(copy.stat().st_size for copy in list_copies(cache)) <= limit
        np.testing.assert_allclose(operator @ np.ones(COLUMNS), matrix() @ np.ones(COLUMNS))
    check_product(second, cache, matrix(1), cache_limit=limit)
    assert not used_copies <= set(list_copies(cache))


# --- copies that cannot be made ---------------------------------------------------------------


def make_file(cache):
    cache.parent.mkdir()
    cache.touch()


def make_writable_by_others(cache):
    check_product(cache.parent.parent / "store", cache)
    next(cache.iterdir()).chmod(0o777)


def make_link(cache):
    elsewhere = cache.parent.parent / "elsewhere"
    elsewhere.mkdir()
    cache.mkdir(parents=True)
    (cache / f"cec_mpi-{os.geteuid()}").symlink_to(elsewhere)


@pytest.mark.parametrize("make_unsafe", [make_file, make_writable_by_others, make_link])
def test_the_store_is_read_if_the_directory_is_unsafe(make_unsafe, tmp_path, store, cache):
    make_unsafe(cache)
    before = list_files(tmp_path)
    message = r"machine 1 .*cannot be copied to .* \(and 2 more\)"
    with pytest.warns(SlowWarning, match=message) as caught_warnings:
        header = check_product(store, cache)
    assert len(caught_warnings) == 1
    assert header["machines_with_copies"] == []
    assert list_files(tmp_path) == before


def test_the_store_is_read_if_a_copy_does_not_fit(tmp_path, store, cache, monkeypatch):
    message = f"--cache-limit is 1000 bytes, but the shard has {SHARD_SIZE}"
    with pytest.warns(SlowWarning, match=message):
        check_product(store, cache, cache_limit=1000)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.warns(SlowWarning, match="has only 1000 bytes free"):
            check_product(store, cache)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SHARD_SIZE // 2, limits[1]))  # like a full disk
    try:
        with pytest.warns(SlowWarning, match="File too large"):
            check_product(store, cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list_files(cache) == set()


def fork(function, *arguments):
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads
        process.start()
    return process


def test_an_unfinished_copy_is_removed_and_made_again(tmp_path, store, cache):
    def copy_and_die():
        os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
        check_product(store, cache)

    process = fork(copy_and_die)
    process.join(LIMIT)
    assert process.exitcode == -signal.SIGKILL
    assert list_copies(cache) == []
    assert [file for file in list_files(cache) if ".partial." in file.name]
    check_product(make_store(tmp_path / "other", 1), cache, matrix(1))
    assert not [file for file in list_files(cache) if ".partial." in file.name]
    check_product(store, cache)
    assert len(list_copies(cache)) == 2 * MACHINES


def test_processes_that_copy_at_the_same_time_share_a_copy(store, cache):
    may_start = multiprocessing.get_context("fork").Event()

    def copy():
        may_start.wait(LIMIT)
        check_product(store, cache)

    processes = [fork(copy) for _ in range(4)]
    may_start.set()
    for process in processes:
        process.join(LIMIT)
        assert process.exitcode == 0
    assert len(list_copies(cache)) == MACHINES
    for path in list_copies(cache):
        assert path.read_bytes() == (store / path.name).read_bytes()


def test_damage_of_the_store_is_also_reported_with_a_cache(store, cache):
    flip_bit(store / "shard-0002.npy")
    with (
        pytest.warns(SlowWarning, match=r"shard-0002.npy: rows 0\.\.149 do not match"),
        pytest.raises(DamagedStoreError, match=r"store/shard-0002.npy: rows .*\(cec-mpi repair"),
        open_operator(store, cache=cache) as X,
    ):
        X @ np.ones(COLUMNS)
    (store / "shard-0002.npy").unlink()
    with pytest.raises(DamagedStoreError, match=r"shard-0002.npy: missing"):
        open_operator(store, cache=cache).__enter__()


def test_a_cache_inside_the_store_is_rejected(store):
    with pytest.raises(InputError, match=r"is inside the store .*: expected a directory elsewhere"):
        open_operator(store, cache=store / "c").__enter__()


def test_the_directory_may_contain_the_name_of_the_computer(tmp_path, store, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    check_product(store, tmp_path / "{host}")
    assert len(list_copies(tmp_path / "node7")) == MACHINES
