"""Bad inputs: each must end with one message and the exit code of its kind.

Commands of cec_mpi with files, options, stores and numbers of ranks that cannot be used.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi import encode
from cec_mpi.store.format.grid import make_grid
from cec_mpi.store.format.manifest import own_sum, shard_header
from helpers.commands import Done, run_to_end
from helpers.waiting import LIMIT

RANKS = 4  # the store of the cases has three machines
_DRAWN = 30  # cases drawn from the seed, beside those written out below


def cec_mpi(*words: object, ranks: int = 0) -> list[object]:
    """The words that start a command of cec_mpi, under mpirun when it takes ranks."""
    launcher = ["mpirun", "-n", ranks] if ranks else []
    return [*launcher, sys.executable, "-m", "cec_mpi", *words]


# A case ------------------------------------------------------------------------------------

Make = Callable[[Path, Path], None]  # (directory of the case, directory of good files)


@dataclass(frozen=True)
class Case:
    """A command that must fail.

    Attributes
    ----------
    name : str
    words : str
        Of the command; ``{here}`` is the directory of the case and ``{good}`` the one
        of good files: ``store``, ``square`` and ``single`` (stores of 3 machines, any 2
        of them enough), ``W.npy`` (vectors for store and single), ``X.npy``.
    code : int
        The exit code that is expected.
    ranks : int
        0 for no launcher.
    make : callable, optional
        Makes the files of the case.
    """

    name: str
    words: str
    code: int = 2
    ranks: int = 0
    make: Make | None = None


def make_good_files(good: Path) -> None:
    """Make the files that the cases share."""
    good.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for store, shape, dtype in (
        ("square", (5, 5), "float64"),
        ("single", (11, 5), "float32"),
        ("store", (11, 5), "float64"),
    ):
        np.save(good / "X.npy", rng.standard_normal(shape))
        encode(good / "X.npy", good / store, 3, 2, dtype=dtype)
    np.save(good / "W.npy", rng.standard_normal((3, 5)))


def attempt(case: Case, here: Path, good: Path) -> str | None:
    """Run a case; returns what is wrong with how it ended, or None."""
    command = cec_mpi(*prepare(case, here, good), ranks=case.ranks)
    return judge(run_to_end(command, cwd=here), case.code)


def prepare(case: Case, here: Path, good: Path) -> list[str]:
    """Make the files of a case; returns the words of its command, after ``cec-mpi``."""
    here.mkdir(parents=True, exist_ok=True)
    if case.make is not None:
        case.make(here, good)
    return [word.format(here=here, good=good) for word in shlex.split(case.words)]


def judge(done: Done, code: int) -> str | None:
    """What is wrong with how a command failed, or None."""
    if done.returncode is None:
        running = "; ".join(done.left)
        return f"no end within {LIMIT} s of {running}, having said {done.told[-400:]!r}"
    if done.left:
        return f"left processes behind: {'; '.join(done.left)}"
    if done.returncode != code:
        return f"exit code {done.returncode}, expected {code}: {done.told[-400:]}"
    if not re.fullmatch(r"cec-mpi: error: [^\n]+", done.told):
        return f"exit code {code}, but not one message: {done.told[-400:]}"
    return None


# Files of a case ---------------------------------------------------------------------------


def put(name: str, content: Any) -> Make:
    """One file: bytes and text as they are, arrays as .npy, anything else as JSON."""

    def make(here: Path, good: Path) -> None:
        data = content
        if isinstance(data, np.ndarray):
            data = npy(data)
        elif not isinstance(data, bytes | str):
            data = json.dumps(data)
        (here / name).write_bytes(data.encode() if isinstance(data, str) else data)

    return make


def npy(array: np.ndarray) -> bytes:
    """The bytes of an .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npy_with_header(header: str, data: bytes = b"") -> bytes:
    """An .npy file whose header says what it likes."""
    text = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def copied(spoil: Callable[[Path], None]) -> Make:
    """A copy of the good store, ``{here}/S``, that is then spoilt."""

    def make(here: Path, good: Path) -> None:
        shutil.copytree(good / "store", here / "S")
        spoil(here / "S")

    return make


def with_manifest(text: str | bytes) -> Make:
    """A copy of the good store with another manifest."""
    data = text.encode() if isinstance(text, str) else text
    return copied(lambda store: (store / "manifest.json").write_bytes(data) and None)


def with_entry(path: str, value: Any) -> Make:
    """A copy of the good store with another value in its manifest, at ``a.b.0``.

    A value of ... takes the entry away.
    """

    def spoil(store: Path) -> None:
        manifest = json.loads((store / "manifest.json").read_text())
        at = manifest
        *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
        for key in parents:
            at = at[key]
        if value is ...:
            del at[last]
        else:
            at[last] = value
        (store / "manifest.json").write_text(json.dumps(manifest))

    return copied(spoil)


def with_shard(change: Callable[[bytes], bytes], machine: int = 2) -> Make:
    """A copy of the good store with other bytes in one shard."""

    def spoil(store: Path) -> None:
        shard = store / f"shard-{machine:04d}.npy"
        shard.write_bytes(change(shard.read_bytes()))

    return copied(spoil)


def without_shard(store: Path) -> None:
    (store / "shard-0002.npy").unlink()


def dangling_shard(store: Path) -> None:
    without_shard(store)
    (store / "shard-0002.npy").symlink_to("nowhere")


def directory_for_shard(store: Path) -> None:
    without_shard(store)
    (store / "shard-0002.npy").mkdir()


def swapped_shards(store: Path) -> None:
    (store / "shard-0001.npy").rename(store / "kept")
    (store / "shard-0002.npy").rename(store / "shard-0001.npy")
    (store / "kept").rename(store / "shard-0002.npy")


# The cases ---------------------------------------------------------------------------------

NOT_MATRICES: dict[str, Any] = {  # nothing of the kind that encode and matvec read
    "an empty file": b"",
    "garbage": bytes(range(256)) * 4,
    "text": "1 2 3\n4 5 6\n",
    "cut in its header": npy(np.ones((3, 5)))[:40],
    "cut in its numbers": npy(np.ones((3, 5)))[:-1],
    "of a later .npy version": b"\x93NUMPY\x09\x00" + npy(np.ones((3, 5)))[8:],
    "with a header that is no dict": npy_with_header("[1, 2]"),
    "with a header without shape": npy_with_header("{'descr': '<f8', 'fortran_order': False}"),
    "with a negative shape": npy_with_header(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 5)}", bytes(120)
    ),
    "with a shape beyond all memory": npy_with_header(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 5)}"
    ),
    "with an unknown dtype": npy_with_header(
        "{'descr': '<q9', 'fortran_order': False, 'shape': (3, 5)}", bytes(120)
    ),
    "of one dimension": np.ones(5),
    "of no dimension": np.array(1.0),
    "of three dimensions": np.ones((3, 5, 1)),
    "without rows": np.ones((0, 5)),
    "of complex numbers": np.ones((3, 5), complex),
    "of strings": np.full((3, 5), "1.0"),
    "of objects": np.full((3, 5), {}, dtype=object),
    "of dates": np.zeros((3, 5), "datetime64[s]"),
    "of records": np.zeros((3, 5), [("a", "f8")]),
    "holding NaN": np.where(np.arange(15).reshape(3, 5) == 7, np.nan, 1.0),
    "holding infinity": np.where(np.arange(15).reshape(3, 5) == 7, -np.inf, 1.0),
}

NOT_MANIFESTS: dict[str, str | bytes] = {
    "empty": "",
    "not JSON": "{",
    "not UTF-8": b"\xff\xfe\x00",
    "a list": "[]",
    "a number": "1",
    "nested without end": "[" * 100_000,
    "of something else": '{"format": "another store", "version": 1}',
    "of no format": '{"version": 1}',
}

OTHER_FILES = ("a list", "a number", "of something else", "of no format")

WRONG_ENTRIES: dict[str, tuple[Any, ...]] = {  # of a manifest
    "version": (1, "2", None, ...),
    "rows": (0, -1, None, "many", 13, float("inf"), float("nan"), ...),
    "columns": (0, [], "x", ...),
    "machines": (2, "3", ...),
    "recovery": (3, ...),
    "rows_per_shard": (5, None, ...),
    "dtype": ("int32", None, ...),
    "rounded": ("no", None, 0, ...),
    "code": ([], None, ...),
    "code.generator": (
        [],
        None,
        "G",
        [[1.0, 2.0], [1.0]],
        [[1.0, float("nan")]] * 3,
        [[1.0, 2.0]] * 2,
        ...,
    ),
    "code.conditioning": (None, [], {}, ...),
    "code.conditioning.median": ("high", None, ...),
    "code.conditioning.worst": ("high", float("nan"), ...),
    "code.conditioning.worst_machines": (1,),
    "column_sizes": (None, {}, ...),
    "column_sizes.file": ("../W.npy", None, ...),
    "row_exponents": ({}, [], ...),
    "row_exponents.file": ("row-exponents.copy.npy", None, ...),
    "shards": ([], None, {}, ...),
    "shards.1": (None, {}, ...),
    "shards.1.file": ("../W.npy", None, "shard-0001.npy", ...),
    "shards.1.bytes": (...,),
}

ALTERED_ENTRIES: dict[str, Any] = {  # as could be true, but is not what was written
    "rows": 12,
    "created_by": "somebody",
    "code.family": "gaussian",
    "code.systematic": True,
    "code.generator.0.0": 0.5,
    "code.conditioning.worst": 1.5,
    "row_exponents": None,
    "shards.1.bytes": 1000,
    "shards.1.xxh3_128": "0" * 32,
    "sha256": ...,
}

DAMAGED: dict[str, Make] = {
    "missing": copied(without_shard),
    "a link to nowhere": copied(dangling_shard),
    "a directory": copied(directory_for_shard),
    "exchanged": copied(swapped_shards),
    "empty": with_shard(lambda data: b""),
    "truncated": with_shard(lambda data: data[:-8]),
    "too long": with_shard(lambda data: data + b"\0"),
    "garbage": with_shard(lambda data: b"\x55" * len(data)),
    "altered in its numbers": with_shard(lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "altered in its header": with_shard(lambda data: data.replace(b"False", b"True ", 1)),
}

SEEN_WHEN_READ = ("exchanged", "altered in its numbers")  # and not by a look at the file


def _two_lost(store: Path) -> None:
    for machine in (1, 3):
        (store / f"shard-{machine:04d}.npy").unlink()


NOT_AVAILABILITIES: dict[str, tuple[str, Any]] = {
    "an empty file": ("a.json", ""),
    "not JSON": ("a.json", "{available: [[1, 2, 3]]}"),
    "cut": ("a.json", '{"available": [[1, 2, 3], [1, 2'),
    "not UTF-8": ("a.json", b'{"available": [[1, 2, 3]]}\xff'),
    "nested without end": ("a.json", "[" * 100_000),
    "a list": ("a.json", [[1, 2, 3]]),
    "a number": ("a.json", 3),
    "null": ("a.json", None),
    "of neither kind": ("a.json", {"machines": [[1, 2, 3]]}),
    "sets that are no list": ("a.json", {"available": 3}),
    "sets by tick": ("a.json", {"available": {"0": [1, 2, 3]}}),
    "no sets": ("a.json", {"available": []}),
    "a set that is a number": ("a.json", {"available": [[1, 2, 3], 2]}),
    "a set that is text": ("a.json", {"available": ["1,2,3"]}),
    "a set that is null": ("a.json", {"available": [[1, 2], None]}),
    "machine 0": ("a.json", {"available": [[0, 1, 2]]}),
    "machine 4 of 3": ("a.json", {"available": [[1, 2, 3], [1, 2, 4]]}),
    "machine -1": ("a.json", {"available": [[-1, 2, 3]]}),
    "machine 1.0": ("a.json", {"available": [[1.0, 2, 3]]}),
    "machine true": ("a.json", {"available": [[True, 2, 3]]}),
    "machine as text": ("a.json", {"available": [["1", "2"]]}),
    "machine as list": ("a.json", {"available": [[[1], [2]]]}),
    "a machine twice": ("a.json", {"available": [[1, 1, 2]]}),
    "a node twice": ("a.csv", "0,add,n1\n60000,add,n1\n"),
    "jobs without nodes": ("a.txt", "JobID|Start|End\n1|2026-01-05T10:00:00|Unknown\n"),
    "no counts": ("a.json", {"metadata": {"gap_seconds": 60}, "data": []}),
    "counts that are no list": ("a.json", {"metadata": {"gap_seconds": 60}, "data": 3}),
    "a negative count": ("a.json", {"data": [3, -1]}),
    "a count of 2.5": ("a.json", {"data": [2.5]}),
    "a count as text": ("a.json", {"data": ["3"]}),
    "a count that is null": ("a.json", {"data": [3, None]}),
    "a count that is NaN": ("a.json", '{"data": [NaN]}'),
    "a count of 5000 digits": ("a.json", '{"data": [' + "9" * 5000 + "]}"),
    "a gap that is a list": ("a.json", {"metadata": {"gap_seconds": [60]}, "data": [3]}),
    "an empty CSV": ("a.csv", ""),
    "a CSV of only a header": ("a.csv", "a,b,c\n"),
    "a CSV with too few columns": ("a.csv", "1,1,1\n1,1\n"),
    "a CSV with too many columns": ("a.csv", "1,1,1,1\n"),
    "a CSV with a 2": ("a.csv", "1,1,1\n1,2,1\n"),
    "a CSV with words": ("a.csv", "1,1,1\nyes,no,yes\n"),
    "a CSV with semicolons": ("a.csv", "1;1;1\n"),
    "a CSV with a giant cell": ("a.csv", '1,1,1\n"' + "x" * 200_000 + '",1,1\n'),
    "a CSV that is not UTF-8": ("a.csv", b"\xff\xfe1,1,1\n"),
}

MODULE = """
import numpy as np
NUMBER = 3
def words(X, *, checkpoint): return {"result": X.matvec(np.full(X.shape[1], "one"))}
def infinite(X, *, checkpoint): return {"result": X.rmatvec(np.full(X.shape[0], np.inf))}
"""

RUN = "run {good}/store --out {here}/out"
WITH_W = RUN + " vectors={good}/W.npy"
POWER = "run {good}/square --out {here}/out power"

RUN_OPTIONS: dict[str, tuple[str, int]] = {  # options of run, and the exit code
    "an unknown option": ("--speed-up 3", 2),
    "too many words": ("another", 2),
    "0 iterations": ("iterations=0", 2),
    "-3 iterations": ("iterations=-3", 2),
    "2.5 iterations": ("iterations=2.5", 2),
    "iterations without a value": ("iterations=", 2),
    "two tasks": ("power svd", 2),
    "--seed -1": ("--seed -1", 2),
    "--seed of a word": ("--seed one", 2),
    "--speeds with 0": ("--speeds 1,0,1", 2),
    "--speeds with -1": ("--speeds=1,-1,1", 2),
    "--speeds with NaN": ("--speeds 1,nan,1", 2),
    "--speeds with infinity": ("--speeds 1,inf,1", 2),
    "--speeds beyond a float": ("--speeds 1,1e400,1", 2),
    "--speeds below a float": ("--speeds 1,1e-400,1", 2),
    "--speeds beyond all memory": ("--speeds 1,1e999999999,1", 2),
    "--speeds with a word": ("--speeds 1,fast,1", 2),
    "--speeds with a gap": ("--speeds 1,,1", 2),
    "--speeds with semicolons": ("--speeds '1;1;1'", 2),
    "--speeds of nothing": ("--speeds ''", 2),
    "--speeds with 1/0": ("--speeds 1,1/0,1", 2),
    "two --speeds for 3 machines": ("--speeds 1,2", 2),
    "four --speeds for 3 machines": ("--speeds 1,2,3,4", 2),
    "--speeds learned": ("--speeds learned", 2),
    "--speeds of a host without one": ("--speeds node01=", 2),
    "--speeds of a host with 0": ("--speeds node01=1,node02=0", 2),
    "--speeds of no host": ("--speeds =1", 2),
    "--speeds of one host twice": ("--speeds node01=1,node01=2", 2),
    "--speeds of hosts and machines": ("--speeds node01=1,2", 2),
    "--speeds of other hosts": ("--speeds not-this-host=1", 2),
    "--checkpoint-every 0": ("--checkpoint-every 0", 2),
    "--checkpoint-every of a word": ("--checkpoint-every minute", 2),
    "--time-limit 0": ("--time-limit 0", 2),
    "--time-limit of NaN": ("--time-limit nan", 2),
    "--time-limit as a clock shows it": ("--time-limit 01:00:00", 2),
    "--resume and --overwrite": ("--resume --overwrite", 2),
    "an unknown scheme": ("--scheme fair", 2),
    "--threads 0": ("--threads 0", 2),
    "--threads of a word": ("--threads all", 2),
    "--machines 0": ("--machines 0,1", 2),
    "--machines 4 of 3": ("--machines 1,2,4", 2),
    "--machines with one twice": ("--machines 1,1,2", 2),
    "--machines of words": ("--machines a,b", 2),
    "--machines as a range that descends": ("--machines 3-1", 2),
    "--machines as a range beyond N": ("--machines 1-4", 2),
    "fewer --machines than needed": ("--machines 2", 4),
    "--tick 0": ("--tick 0", 2),
    "--tick -1": ("--tick -1", 2),
    "--tick of NaN": ("--tick nan", 2),
    "--tick of infinity": ("--tick inf", 2),
    "--tick of a word": ("--tick soon", 2),
    "--tick that is next to nothing": ("--tick 1e-320", 2),
    "--available-probability 0": ("--available-probability 0", 2),
    "--available-probability 1.5": ("--available-probability 1.5", 2),
    "--available-probability of NaN": ("--available-probability nan", 2),
    "--available-probability of 50%": ("--available-probability 50%", 2),
    "--available-probability of hardly ever": ("--available-probability 1e-9", 4),
    "--repeat without a file": ("--repeat", 2),
    "a missing --availability file": ("--availability {here}/none.json", 2),
    "a directory as --availability file": ("--availability {good}", 2),
    "--availability without a file": ("--availability", 2),
    "two sources of availability": (
        "--availability {good}/none.json --available-probability 0.5",
        2,
    ),
    "--emulate-speeds with 0": ("--emulate-speeds 1,0,1", 2),
    "--emulate-speeds with NaN": ("--emulate-speeds 1,nan,1", 2),
    "two --emulate-speeds for 3 machines": ("--emulate-speeds 1,2", 2),
    "--emulate-base alone": ("--emulate-base 100", 2),
    "--emulate-noise alone": ("--emulate-noise 0.1", 2),
    "--emulate-change alone": ("--emulate-change 1:1:0.5", 2),
    "--emulate-base 0": ("--emulate-speeds 1,1,1 --emulate-base 0", 2),
    "--emulate-base -1": ("--emulate-speeds 1,1,1 --emulate-base -1", 2),
    "--emulate-base of NaN": ("--emulate-speeds 1,1,1 --emulate-base nan", 2),
    "--emulate-noise -1": ("--emulate-speeds 1,1,1 --emulate-noise -1", 2),
    "--emulate-noise of NaN": ("--emulate-speeds 1,1,1 --emulate-noise nan", 2),
    "--emulate-change of a word": ("--emulate-speeds 1,1,1 --emulate-change soon", 2),
    "--emulate-change in two parts": ("--emulate-speeds 1,1,1 --emulate-change 1:2", 2),
    "--emulate-change of machine 9": ("--emulate-speeds 1,1,1 --emulate-change 1:9:2", 2),
    "--emulate-change by 0": ("--emulate-speeds 1,1,1 --emulate-change 1:1:0", 2),
    "--emulate-change by NaN": ("--emulate-speeds 1,1,1 --emulate-change 1:1:nan", 2),
    "--emulate-change at step -1": ("--emulate-speeds 1,1,1 --emulate-change=-1:1:2", 2),
    "task unknown": ("inverse", 2),
    "task of an unknown module": ("no_such_module:f", 2),
    "task of an unknown function": ("json:no_such_function", 2),
    "task of a module": ("json", 2),
    "task without a module": (":f", 2),
    "task without a function": ("json:", 2),
    "task that is text": ("os:sep", 2),
    "task that takes nothing": ("os:getcwd", 2),
    "task without a signature": ("builtins:max", 2),
    "an option of the task without a value": ("tol", 2),
    "an option of the task without a name": ("=3", 2),
    "an option that the task has not": ("tol=1e-3", 2),
    "vectors twice": ("vectors=3", 2),
}

ELASTIC_OPTIONS: dict[str, tuple[str, int]] = {  # of run, that are refused before it listens
    "--on-loss": ("--on-loss continue", 2),
    "--spares": ("--spares 1", 2),
    "--replace": ("--replace=spawn", 2),
    "--elastic with a value": ("--elastic=yes", 2),
    "--local 0": ("--elastic --local 0", 2),
    "--local of a word": ("--local all", 2),
    "--stragglers beyond N - L": ("--stragglers 2", 2),
    "--stragglers of a word": ("--stragglers one", 2),
    "--check of a word": ("--check=all", 2),
    "--check parity, which was removed": ("-q --check parity", 2),
    "--check=sample, which was removed": ("--check=sample", 2),
    "--check with too few machines": ("--check --stragglers 1", 2),
    "--adopt, which was removed": ("--adopt", 2),
    "--deadline 0": ("--deadline 0", 2),
    "--deadline of words": ("--deadline soon", 2),
    "--accept into no directory": ("--accept {here}/none/conn", 2),
    "--accept of a file that is no connection file": ("--accept {good}/W.npy", 2),
    "--listen without a port": ("--listen node1", 2),
    "--listen with port 0": ("--listen 127.0.0.1:0", 2),
    "--listen without a key": ("--listen 127.0.0.1:1", 2),
    "--listen with --accept": ("--listen 127.0.0.1:1 --accept {here}/conn", 2),
    "--interface that is not there": ("--elastic --interface eth77", 2),
    "--ports in a wrong order": ("--elastic --ports 9-3", 2),
    "--ports of a word": ("--elastic --ports any", 2),
    "--start-timeout 0": ("--elastic --start-timeout 0", 2),
    "--inject of machine 4": ("--elastic --inject kill:4@1", 2),
    "fewer --machines than needed, elastic": ("--elastic --machines 2", 4),
}

POWER_OPTIONS: dict[str, str] = {
    "an unknown option": "tolerance=1e-3",
    "a tol of 2": "tol=2",
    "a tol of 0": "tol=0",
    "a tol of words": "tol=small",
    "a tol that is a list": "tol=[1]",
    "a checkpoint": "checkpoint=1",
    "0 iterations": "iterations=0",
    "iterations of words": "iterations=many",
    "iterations that are nothing": "iterations=None",
    "a seed of -1": "seed=-1",
    "a seed of words": "seed=one",
    "vectors": "vectors={good}/W.npy",
}

PLAN = "--speeds 2,2,3 --recovery 2 --rows 12"
PLAN_WORDS: dict[str, tuple[str, int]] = {
    "nothing": ("", 2),
    "no speeds": ("--recovery 2 --rows 12", 2),
    "no recovery": ("--speeds 2,2,3 --rows 12", 2),
    "no rows": ("--speeds 2,2,3 --recovery 2", 2),
    "a speed of 0": ("--speeds 2,0,3 --recovery 2 --rows 12", 2),
    "a negative speed": ("--speeds=-2,2,3 --recovery 2 --rows 12", 2),
    "a speed of NaN": ("--speeds 2,nan,3 --recovery 2 --rows 12", 2),
    "a speed of infinity": ("--speeds 2,inf,3 --recovery 2 --rows 12", 2),
    "a speed beyond a float": ("--speeds 2,1e400,3 --recovery 2 --rows 12", 2),
    "a speed below a float": ("--speeds 2,1e-400,3 --recovery 2 --rows 12", 2),
    "a speed beyond all memory": ("--speeds 2,1e999999999,3 --recovery 2 --rows 12", 2),
    "a speed that is next to nothing": ("--speeds 2,1e-999999999,3 --recovery 2 --rows 12", 2),
    "a speed that is a word": ("--speeds 2,x,3 --recovery 2 --rows 12", 2),
    "a speed left out": ("--speeds 2,,3 --recovery 2 --rows 12", 2),
    "recovery 0": ("--speeds 2,2,3 --recovery 0 --rows 12", 2),
    "recovery of a word": ("--speeds 2,2,3 --recovery all --rows 12", 2),
    "recovery above all machines": ("--speeds 2,2,3 --recovery 4 --rows 12", 4),
    "rows 0": ("--speeds 2,2,3 --recovery 2 --rows 0", 2),
    "rows of 1.5": ("--speeds 2,2,3 --recovery 2 --rows 1.5", 2),
    "rows beyond 64 bits": ("--speeds 2,2,3 --recovery 2 --rows 100000000000000000000", 2),
    "rows beyond 64 bits for all": ("--speeds 2,2 --recovery 2 --rows 100000000000000000000", 2),
    "rows beyond 64 bits in sum": ("--speeds 2,2,3 --recovery 2 --rows 9000000000000000000", 2),
    "too few available": (PLAN + " --available 1", 4),
    "machine 0 available": (PLAN + " --available 0,1,2", 2),
    "machine 4 of 3 available": (PLAN + " --available 1,2,4", 2),
    "a machine available twice": (PLAN + " --available 1,1,2", 2),
    "nobody available": (PLAN + " --available ''", 2),
    "words for machines": (PLAN + " --available all", 2),
    "stragglers -1": (PLAN + " --stragglers -1", 2),
    "too many stragglers": (PLAN + " --stragglers 2", 4),
    "an unknown scheme": (PLAN + " --scheme fair", 2),
    "an unknown option": (PLAN + " --yaml", 2),
    "a value for --json": (PLAN + " --json=yes", 2),
    "too many words": (PLAN + " again", 2),
}

ENCODE = "encode {here}/X.npy {here}/S --machines 3 --recovery 2"
ENCODE_GOOD = "encode {good}/X.npy {here}/S"
ENCODE_WORDS: dict[str, tuple[str, int]] = {
    "nothing": ("encode", 2),
    "no store": ("encode {good}/X.npy --machines 3 --recovery 2", 2),
    "no machines": (ENCODE_GOOD + " --recovery 2", 2),
    "no recovery": (ENCODE_GOOD + " --machines 3", 2),
    "machines 0": (ENCODE_GOOD + " --machines 0 --recovery 2", 2),
    "machines -3": (ENCODE_GOOD + " --machines -3 --recovery 2", 2),
    "machines of 3.5": (ENCODE_GOOD + " --machines 3.5 --recovery 2", 2),
    "machines of a word": (ENCODE_GOOD + " --machines three --recovery 2", 2),
    "machines beyond 64 bits": (ENCODE_GOOD + " --machines 99999999999999999999 --recovery 2", 2),
    "machines of 5000 digits": (ENCODE_GOOD + f" --machines {'9' * 5000} --recovery 2", 2),
    "recovery 0": (ENCODE_GOOD + " --machines 3 --recovery 0", 2),
    "recovery above machines": (ENCODE_GOOD + " --machines 3 --recovery 4", 4),
    "an unknown code": (ENCODE_GOOD + " --machines 3 --recovery 2 --code reed", 2),
    "an unknown dtype": (ENCODE_GOOD + " --machines 3 --recovery 2 --dtype int8", 2),
    "seed -1": (ENCODE_GOOD + " --machines 3 --recovery 2 --seed -1", 2),
    "an unknown option": (ENCODE_GOOD + " --machines 3 --recovery 2 --level 9", 2),
    "too many words": (ENCODE_GOOD + " T --machines 3 --recovery 2", 2),
    "a code that is all noise": (
        ENCODE_GOOD + " --machines 60 --recovery 40 --code fourier --dtype float32",
        2,
    ),
    "a store that exists": ("encode {good}/X.npy {good}/store --machines 3 --recovery 2", 2),
    "a store that is a file": ("encode {good}/X.npy {good}/W.npy --machines 3 --recovery 2", 2),
    "a store in no directory": ("encode {good}/X.npy {here}/a/S --machines 3 --recovery 2", 2),
    "a store in a file": ("encode {good}/X.npy {good}/W.npy/S --machines 3 --recovery 2", 2),
    "a store without a name": ("encode {good}/X.npy '' --machines 3 --recovery 2", 2),
    "a store of a name too long": (
        f"encode {{good}}/X.npy {{here}}/{'S' * 300} --machines 3 --recovery 2",
        2,
    ),
    "a matrix without a name": ("encode '' {here}/S --machines 3 --recovery 2", 2),
    "a matrix that is a directory": ("encode {good}/store {here}/S --machines 3 --recovery 2", 2),
    "a matrix that is missing": (ENCODE, 2),
    "resume with other arguments": (
        "encode {good}/X.npy {good}/store --machines 3 --recovery 1 --resume",
        2,
    ),
    "resume onto a file": (
        "encode {good}/X.npy {good}/W.npy --machines 3 --recovery 2 --resume",
        2,
    ),
    "raw binary without a dtype": (ENCODE_GOOD + " --machines 3 --recovery 2 --shape 11,5", 2),
    "raw binary of another size": (
        ENCODE_GOOD + " --machines 3 --recovery 2 --shape 11,5 --dtype float32",
        2,
    ),
    "raw binary of a strange dtype": (
        ENCODE_GOOD + " --machines 3 --recovery 2 --shape 11,5 --input-dtype f77",
        2,
    ),
    "raw binary of complex numbers": (
        ENCODE_GOOD + " --machines 3 --recovery 2 --shape 71,1 --input-dtype c8",
        2,
    ),
    "a shape of one number": (ENCODE_GOOD + " --machines 3 --recovery 2 --shape 11", 2),
    "a shape of words": (ENCODE_GOOD + " --machines 3 --recovery 2 --shape axb", 2),
    "a shape of no rows": (ENCODE_GOOD + " --machines 3 --recovery 2 --shape 0,5", 2),
    "an input dtype of an .npy file": (
        ENCODE_GOOD + " --machines 3 --recovery 2 --input-dtype f4",
        2,
    ),
    "memory 0": (ENCODE_GOOD + " --machines 3 --recovery 2 --memory 0", 2),
    "memory that is too little": (ENCODE_GOOD + " --machines 3 --recovery 2 --memory 5M", 2),
    "a dataset of no HDF5 file": ("encode {good}/X.npy::/a {here}/S --machines 3 --recovery 2", 2),
    "a file of no known format": ("encode {here}/a.txt {here}/S --machines 3 --recovery 2", 2),
}


def written_out() -> Iterator[Case]:
    """The cases that do not depend on a seed."""
    yield from _command_cases()
    yield from _encode_cases()
    yield from _store_cases()
    for name, (words, code) in PLAN_WORDS.items():
        yield Case(f"plan: {name}", f"plan {words}", code)
    yield from _run_cases()
    yield from _rank_cases()
    yield from _special_cases()
    yield from _absurd_cases()


def _command_cases() -> Iterator[Case]:
    for ranks in (0, RANKS):
        where = _where(ranks)
        yield Case(f"no command{where}", "", ranks=ranks)
        yield Case(f"an unknown command{where}", "multiply X W", ranks=ranks)
        yield Case(f"an unknown option{where}", "--fast", ranks=ranks)
        yield Case(f"doctor: too many words{where}", "doctor now", ranks=ranks)
        yield Case(f"doctor: an unknown option{where}", "doctor --fix", ranks=ranks)
        yield Case(f"run: nothing{where}", "run", ranks=ranks)
        yield Case(f"run: no DIR{where}", "run {good}/store", ranks=ranks)


TABLES: dict[str, tuple[str | bytes, str]] = {  # what t.csv holds, and further words
    "a first line of both": ("1,?,3\n4,5,6\n", ""),
    "a hole": ("a,b\n1,2\n3,\n", ""),
    "lines of unequal length": ("a,b\n1,2\n3,4,5\n", ""),
    "an open quote": ('a,b\n1,2\n"3,4\n', ""),
    "UTF-16": ("1,2\n3,4\n".encode("utf-16"), ""),
    "control characters": ("a\n1\n\x1b[2J\r\x07\n", ""),
    "an unknown column": ("a,b\n1,2\n", "--drop c"),
    "no column left": ("a,b\n1,2\n", "--drop a,b"),
    "a column twice": ("a,b\n1,2\n", "--columns a,1"),
    "a target of text": ("a,b\n1,yes\n", "--target b:{here}/y.npy"),
    "a target twice": ("a,b\n1,2\n", "--target b:y.npy --target b:z.npy"),
    "a target without a file": ("a,b\n1,2\n", "--target b"),
    "a target for no .npy file": ("a,b\n1,2\n", "--target b:y.csv"),
    "a delimiter of two": ("a,b\n1,2\n", "--delimiter ,,"),
}


def _encode_cases() -> Iterator[Case]:
    for name, (content, rest) in TABLES.items():
        words = "encode {here}/t.csv {here}/S --machines 3 --recovery 2 "
        yield Case(f"encode: a table with {name}", words + rest, make=put("t.csv", content))
    for name, (words, code) in ENCODE_WORDS.items():
        yield Case(f"encode: {name}", words, code)
    for name, content in NOT_MATRICES.items():
        yield Case(f"encode: a matrix {name}", ENCODE, make=put("X.npy", content))
    yield Case("encode: a matrix without columns", ENCODE, make=put("X.npy", np.ones((3, 0))))
    yield Case(
        "encode: numbers too large for float32",
        ENCODE + " --dtype float32",
        make=put("X.npy", np.full((3, 5), 1e300)),
    )
    yield Case(
        "encode: numbers too large to be added",
        f"{ENCODE} --scaling none",
        make=put("X.npy", np.full((4, 5), 1.7e308)),
    )
    yield Case("encode: too many words under mpirun", "encode a b c", ranks=RANKS)
    yield Case(
        "encode: a missing matrix under mpirun",
        "encode none.npy {here}/S --machines 3 --recovery 2",
        ranks=RANKS,
    )


ON_STORES = {  # commands with the words after the store
    "info": "",
    "verify": "",
    "repair": "",
    "decode": " {here}/out.npy",
    "add-machine": "",
}
STORE_WORDS: dict[str, tuple[str, int]] = {
    "repair: machine 4 of 3": ("repair {good}/store --machine 4", 2),
    "repair: machine 0": ("repair {good}/store --machine 0", 2),
    "repair: no memory": ("repair {good}/store --memory 1K", 2),
    "repair: memory of a word": ("repair {good}/store --memory much", 2),
    "decode: onto a file": ("decode {good}/store {good}/W.npy", 2),
    "decode: into no directory": ("decode {good}/store {here}/a/out.npy", 2),
    "decode: a name of no format": ("decode {good}/store {here}/out.txt", 2),
    "decode: a dataset of a table": ("decode {good}/store {here}/out.csv::/X", 2),
    "decode: a dataset without a name": ("decode {good}/store {here}/out.h5::", 2),
    "decode: no name": ("decode {good}/store ''", 2),
    "add-machine: seed -1": ("add-machine {good}/store --seed -1", 2),
}


def _store_cases() -> Iterator[Case]:
    for command, rest in ON_STORES.items():
        for name, words in {
            "nothing": command,
            "too many words": f"{command} {{good}}/store {rest} {{good}}/store 3",
            "an unknown option": f"{command} {{good}}/store {rest} --deep",
            "a missing store": f"{command} {{here}}/none {rest}",
            "a file": f"{command} {{good}}/W.npy {rest}",
            "a directory that is no store": f"{command} {{good}} {rest}",
        }.items():
            yield Case(f"{command}: {name}", words)
    for name, (words, code) in STORE_WORDS.items():
        yield Case(name, words, code)
    for name, make in DAMAGED.items():
        yield Case(f"verify: a shard {name}", "verify {here}/S", 5, make=make)
        if name not in SEEN_WHEN_READ:
            yield Case(f"info: a shard {name}", "info {here}/S", 5, make=make)
    for command in ("repair", "decode", "add-machine"):
        words = f"{command} {{here}}/S {ON_STORES[command]}"
        yield Case(f"{command}: two of three shards lost", words, 5, make=copied(_two_lost))
        yield Case(f"{command}: two lost, mpirun", words, 5, RANKS, make=copied(_two_lost))
        yield Case(f"{command}: a missing store, mpirun", f"{command} none a", ranks=RANKS)
    for name, text in NOT_MANIFESTS.items():
        code = 2 if name in OTHER_FILES else 5
        yield Case(f"info: a manifest {name}", "info {here}/S", code, make=with_manifest(text))
    yield Case(
        "info: a manifest that is a directory",
        "info {here}/S",
        make=lambda here, good: (here / "S" / "manifest.json").mkdir(parents=True),
    )
    for path, values in WRONG_ENTRIES.items():
        for value in values:
            found = "gone" if value is ... else json.dumps(value)
            make = with_entry(path, value)
            code = 2 if path == "version" else 5
            name = f"info: {path} of a manifest is {found}"
            yield Case(name, "info {here}/S", code, make=make)

    for path, value in ALTERED_ENTRIES.items():
        for command in ("info", "verify"):
            name = f"{command}: {path} of a manifest was altered"
            yield Case(name, f"{command} {{here}}/S", 5, make=with_entry(path, value))


def _run_cases() -> Iterator[Case]:
    for name, (words, code) in RUN_OPTIONS.items():
        task = RUN if name.startswith("task ") else WITH_W
        yield from _both(name, f"{task} {words}", code)
    for name, (words, code) in ELASTIC_OPTIONS.items():
        yield Case(f"run: {name} (no launcher)", f"{WITH_W} {words}", code)
        yield Case(f"run: {name} (mpirun)", f"{WITH_W} {words}", code, RANKS)
    for name, words in POWER_OPTIONS.items():
        yield from _both(f"power with {name}", f"{POWER} {words}")
    yield from _both("power of a matrix that is not square", RUN + " power")
    for function in ("NUMBER", "words", "infinite"):
        words = f"{RUN} my_task:{function}"
        yield from _both(f"my task {function}", words, make=put("my_task.py", MODULE))
    yield from _both("no vectors", RUN)
    yield from _both("missing vectors", RUN + " vectors={here}/none.npy")
    yield from _both("a directory of vectors", RUN + " vectors={good}")
    for name, content in NOT_MATRICES.items():
        make = put("W.npy", content)
        yield from _both(f"vectors {name}", RUN + " vectors={here}/W.npy", make=make)
    yield from _both(
        "vectors too short", RUN + " vectors={here}/W.npy", make=put("W.npy", np.ones((3, 4)))
    )
    yield from _both(
        "vectors that are not finite",
        "run {good}/single --out {here}/out vectors={here}/W.npy",
        make=put("W.npy", np.full((3, 5), np.inf)),
    )
    for name, (file, content) in NOT_AVAILABILITIES.items():
        words = f"{WITH_W} --availability {{here}}/{file}"
        yield from _both(f"availability: {name}", words, make=put(file, content))
    yield from _availability_cases()
    yield from _directory_cases()


def _availability_cases() -> Iterator[Case]:
    def two(first: Any, second: Any) -> Make:
        def make(here: Path, good: Path) -> None:
            put("a.json", first)(here, good)
            put("b.json", second)(here, good)

        return make

    words = WITH_W + " --availability {here}/a.json"
    sets = {"available": [[1, 2, 3]]}
    counts = {"metadata": {"gap_seconds": 60}, "data": [3]}
    others = {"metadata": {"gap_seconds": 30}, "data": [3]}
    both = words + " {here}/b.json"
    yield from _both("availability: two files of sets", both, make=two(sets, sets))
    yield from _both("availability: sets and counts", both, make=two(counts, sets))
    yield from _both("availability: different gaps", both, make=two(counts, others))
    for name, content in {
        "too few at once": {"available": [[1], [1, 2, 3]]},
        "too few later": {"available": [[1, 2, 3], [2]]},
        "nobody": {"available": [[]]},
        "counts too small": {"data": [3, 1]},
    }.items():
        yield from _both(f"availability: {name}", words, 4, make=put("a.json", content))
    yield from _both(
        "availability: waiting for what never comes",
        words + " --wait",
        4,
        make=put("a.json", {"available": [[1, 2, 3], [1]]}),
    )


def _directory_cases() -> Iterator[Case]:
    words = WITH_W.replace("{here}/out", "{here}/file")
    file = put("file", "")
    yield from _both("DIR is a file", words, make=file)
    yield from _both("DIR is in a file", words.replace("/file", "/file/out"), make=file)
    for name in ("steps.jsonl", "summary.json", "result.npy"):
        words = WITH_W.replace("{here}/out", "{here}")
        yield from _both(f"DIR holds {name}", words, make=put(name, "something\n"))
    for name in ("logs", "logs/master.log"):
        make = _in_the_way(f"out/{name}")
        yield from _both(f"DIR/{name} cannot be written", WITH_W, make=make)
    make = _in_the_way("out/logs/machine-0002.log")
    yield Case("run: the log of a machine cannot be written", WITH_W, 3, RANKS, make)


def _in_the_way(name: str) -> Make:
    """A directory where a file is to be written, or the other way round."""

    def make(here: Path, good: Path) -> None:
        path = here / name
        path.parent.mkdir(parents=True)
        if path.suffix:
            path.mkdir()
        else:
            path.touch()

    return make


def _rank_cases() -> Iterator[Case]:
    for ranks in (1, 2, 3, 5):
        yield Case(f"run: {ranks} ranks for 3 machines", WITH_W, ranks=ranks)
    yield Case("run: 4 ranks for 2 of 3 machines", WITH_W + " --machines 1,3", ranks=4)
    yield Case("run: 3 ranks for 3 machines named", WITH_W + " --machines 1,2,3", ranks=3)
    yield Case("run: --serial under mpirun", WITH_W + " --serial", ranks=RANKS)
    for name, words, make in (
        ("a missing store", "{here}/none", None),
        ("a file for a store", "{good}/W.npy", None),
        ("a directory that is no store", "{good}", None),
        ("a store of another version", "{here}/S", with_entry("version", 1)),
    ):
        words = f"run {words} --out {{here}}/out vectors={{good}}/W.npy"
        yield from _both(name, words, make=make)
    damaged = "run {here}/S --out {here}/out vectors={good}/W.npy"
    yield from _both("a damaged manifest", damaged, 5, make=with_entry("shards", ...))
    for name, make in DAMAGED.items():
        words = "run {here}/S --out {here}/out vectors={good}/W.npy"
        yield Case(f"run: a shard {name} (serial)", words + " --serial", 5, make=make)
        yield Case(f"run: a shard {name} (mpirun)", words, 5, RANKS, make)


def _both(name: str, words: str, code: int = 2, make: Make | None = None) -> Iterator[Case]:
    """A case of run in one process and under mpirun."""
    yield Case(f"run: {name} (serial)", f"{words} --serial", code, make=make)
    yield Case(f"run: {name} (mpirun)", words, code, RANKS, make)


def _special_cases() -> Iterator[Case]:
    """FIFOs, sockets and devices where files are expected: who waits for them waits for ever."""
    run = "run {here}/S --out {here}/out vectors={good}/W.npy"
    here = run.replace("{here}/S", "{good}/store")
    fifo_manifest, fifo_shard = (
        copied(special(name)) for name in ("manifest.json", "shard-0002.npy")
    )
    for word in ("info", "verify", "repair", "add-machine"):
        yield Case(f"{word}: manifest.json is a FIFO", f"{word} {{here}}/S", make=fifo_manifest)
    yield Case("decode: a FIFO", "decode {here}/S {here}/X.npy", make=fifo_manifest)
    yield from _both("manifest.json is a FIFO", run, make=fifo_manifest)
    yield Case("info: a shard is a FIFO", "info {here}/S", 5, make=fifo_shard)
    yield Case("verify: a shard is a FIFO", "verify {here}/S", 5, make=fifo_shard)
    yield Case("repair: a shard is a FIFO", "repair {here}/S", make=fifo_shard)
    yield from _both("a shard is a FIFO", run, 5, make=fifo_shard)
    for kind in ("a socket", "a device"):
        make = copied(special("manifest.json", kind))
        yield Case(f"info: manifest.json is {kind}", "info {here}/S", make=make)
    sums = copied(lambda store: [special(f"checksums-1{c}.npy")(store) for c in ("", ".copy")])
    yield Case("verify: the checksums are FIFOs", "verify {here}/S", 5, make=sums)
    yield from _both("the checksums are FIFOs", run, 5, make=sums)
    for name in ("manifest.json", "incomplete.json"):
        words = "encode {good}/X.npy {here} --machines 3 --recovery 2 --resume"
        yield Case(f"encode --resume: {name} is a FIFO", words, make=beside(name))
    for name in ("X.npy", "X.csv", "X.mtx", "X.h5", "X"):
        words = f"encode {{here}}/{name} {{here}}/S --machines 3 --recovery 2"
        yield Case(f"encode: {name} is a FIFO", words, make=beside(name))
    raw = "encode {here}/X {here}/S --machines 3 --recovery 2 --shape 3,4 --input-dtype '<f4'"
    yield Case("encode: raw binary is a FIFO", raw, make=beside("X"))
    parts = "encode {here}/out {here}/S --machines 3 --recovery 2"
    yield Case("encode: a part is a FIFO", parts, make=beside("out/1.npy"))
    for name in ("S", "out"):
        yield from _both(f"{'STORE' if name == 'S' else 'DIR'} is a FIFO", run, make=beside(name))
    for name in ("steps.jsonl", "summary.json", "result.npy", "checkpoint.npz"):
        for option in ("--resume", "--overwrite"):
            words = f"{here} {option}"
            make = beside(f"out/{name}")
            yield Case(f"run {option}: {name} is a FIFO", f"{words} --serial", make=make)
    for name in ("logs", "logs/master.log", ".lock"):
        yield from _both(f"DIR/{name} is a FIFO", here, make=beside(f"out/{name}"))
    words = here.replace("{good}/W.npy", "{here}/W.npy")
    yield from _both("W.npy is a FIFO", words, make=beside("W.npy"))
    for name in ("a.json", "a.csv"):
        words = f"{here} --availability {{here}}/{name}"
        yield from _both(f"{name} is a FIFO", words, make=beside(name))


def _absurd_cases() -> Iterator[Case]:
    """Manifests with a right checksum that say what no file and no memory can hold."""
    commands = {
        "info": ("info {here}/S", 5),
        "verify": ("verify {here}/S", 5),
        "repair": ("repair {here}/S", 5),
        "decode": ("decode {here}/S {here}/Y.npy", 5),
        "add-machine": ("add-machine {here}/S", 5),
        "run": ("run {here}/S --out {here}/out pca --serial", 5),
    }
    for rows in (2**50, 2**62, 10**30):
        for name, (words, code) in commands.items():
            make = copied(lambda store, rows=rows: absurd(store, rows, 5))
            yield Case(f"{name}: a manifest of {rows:.0e} rows", words, code, make=make)
    for name, (words, code) in commands.items():
        make = copied(lambda store: absurd(store, 11, 2**50))
        yield Case(f"{name}: a manifest of 2^50 columns", words, code, make=make)
    make = copied(lambda store: absurd(store, 2**20, 5, block_rows=1))
    yield Case("verify: a manifest of tiny blocks", "verify {here}/S", 5, make=make)


def absurd(store: Path, rows: int, columns: int, **grid: int) -> None:
    """Give a store a manifest of another size, which is whole and fits itself."""
    content = json.loads((store / "manifest.json").read_text())
    each = -(-rows // content["recovery"])
    itemsize = int(content["dtype"].removeprefix("float")) // 8
    header = shard_header(each, columns, content["dtype"])
    content |= {"rows": rows, "columns": columns, "rows_per_shard": each, "shard_header": header}
    content["grid"] = asdict(make_grid(each, columns, itemsize, content["machines"]))
    content["grid"] = {name: content["grid"][name] for name in ("block_rows", "block_columns")}
    content["grid"] |= grid
    for shard in content["shards"]:
        shard["bytes"] = len(header) + each * columns * itemsize
    content["sha256"] = own_sum(content)
    for name in ("manifest.json", "manifest.copy.json"):
        (store / name).write_text(json.dumps(content))


def special(name: str, kind: str = "a FIFO") -> Callable[[Path], None]:
    """Put something that is no file into a directory, in the place of one."""

    def put_there(directory: Path) -> None:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if kind == "a FIFO":
            os.mkfifo(path)
        elif kind == "a socket":
            with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(directory):
                server.bind(name)  # a path within a test may be too long
        else:
            path.symlink_to("/dev/zero")

    return put_there


def beside(name: str) -> Make:
    """A FIFO in the directory of the case."""
    return lambda here, good: special(name)(here)


def _where(ranks: int) -> str:
    return " under mpirun" if ranks else ""


# Cases drawn from a seed -------------------------------------------------------------------


def drawn(seed: int) -> Iterator[Case]:
    """Cases without end, different for each seed."""
    rng = random.Random(seed)
    kinds = (_cut_matrix, _cut_vectors, _cut_shard, _altered_shard, _cut_manifest)
    kinds += (_wrong_value, _wrong_set, _wrong_speeds, _wrong_ranks, _wrong_option)
    for number in itertools.count(1):
        yield kinds[number % len(kinds)](rng, f"drawn {number}")


def _cut_matrix(rng: random.Random, name: str) -> Case:
    data = npy(np.ones((3, 5)))
    cut = rng.randrange(len(data))
    return Case(f"{name}: a matrix cut to {cut} bytes", ENCODE, make=put("X.npy", data[:cut]))


def _cut_vectors(rng: random.Random, name: str) -> Case:
    data = npy(np.ones((3, 5)))
    cut = rng.randrange(len(data))
    words = RUN + " vectors={here}/W.npy"
    make = put("W.npy", data[:cut])
    return Case(f"{name}: vectors cut to {cut} bytes", words, ranks=RANKS, make=make)


def _cut_shard(rng: random.Random, name: str) -> Case:
    share, machine = rng.random(), rng.randint(1, 3)
    make = with_shard(lambda data: data[: int(share * len(data))], machine)
    words = "run {here}/S --out {here}/out vectors={good}/W.npy"
    return Case(f"{name}: shard {machine} cut to {share:.0%}", words, 3, RANKS, make)


def _altered_shard(rng: random.Random, name: str) -> Case:
    share, machine, bit = rng.random(), rng.randint(1, 3), 1 << rng.randrange(8)

    def alter(data: bytes) -> bytes:
        at = int(share * len(data))
        return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]

    make = with_shard(alter, machine)
    return Case(f"{name}: a bit of shard {machine} at {share:.0%}", "verify {here}/S", 5, make=make)


def _cut_manifest(rng: random.Random, name: str) -> Case:
    share = 0.99 * rng.random()

    def spoil(store: Path) -> None:
        text = (store / "manifest.json").read_bytes()
        (store / "manifest.json").write_bytes(text[: int(share * len(text))])

    return Case(f"{name}: a manifest cut to {share:.0%}", "info {here}/S", 5, make=copied(spoil))


def _wrong_value(rng: random.Random, name: str) -> Case:
    paths = ("version", "rows", "columns", "machines", "recovery", "rows_per_shard", "dtype")
    path = rng.choice((*paths, "code", "code.generator", "code.conditioning", "shards"))
    value = rng.choice((None, [], {}, "x", -1))
    make = with_entry(path, value)
    words = "run {here}/S --out {here}/out vectors={good}/W.npy"
    name = f"{name}: {path} of a manifest is {value!r}"
    return Case(name, words, 2 if path == "version" else 5, RANKS, make)


def _wrong_set(rng: random.Random, name: str) -> Case:
    ticks: list[Any] = [[1, 2, 3] for _ in range(5)]
    tick = rng.randrange(5)
    wrong = rng.choice((0, -1, 4, 10**30, 1.5, "2", None, True, [1], {}))
    ticks[tick][rng.randrange(3)] = wrong
    words = WITH_W + " --availability {here}/a.json"
    make = put("a.json", {"available": ticks})
    return Case(f"{name}: machine {wrong!r} at tick {tick}", words, ranks=RANKS, make=make)


def _wrong_speeds(rng: random.Random, name: str) -> Case:
    count = rng.choice((1, 2, 4, 5, 30))
    speeds = ",".join(f"{rng.uniform(0.1, 9):.2f}" for _ in range(count))
    return Case(f"{name}: {count} speeds", f"{WITH_W} --speeds {speeds} --serial")


def _wrong_ranks(rng: random.Random, name: str) -> Case:
    ranks = rng.choice((1, 2, 3, 5, 6))
    return Case(f"{name}: {ranks} ranks", WITH_W, ranks=ranks)


def _wrong_option(rng: random.Random, name: str) -> Case:
    option = rng.choice(("steps", "threads", "seed", "tick", "speeds", "machines", "scheme"))
    word = "".join(rng.choices("abcxyz,;:=/*$%äß漢 \t", k=rng.randint(1, 12)))
    words = f"{WITH_W} {shlex.quote(f'--{option}={word}')} --serial"
    return Case(f"{name}: --{option} of {word!r}", words)


# All cases ---------------------------------------------------------------------------------


def cases() -> list[Case]:
    """Some 600 different cases, by name."""
    every = [*written_out(), *itertools.islice(drawn(0), _DRAWN)]
    return sorted(every, key=lambda case: case.name)
