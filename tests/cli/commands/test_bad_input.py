"""Invalid options, files and stores give one message and an exit code.

Other tests use invalid manifests and invalid files of availability.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from cec_mpi import encode

MakeFiles = Callable[[Path], None]  # takes the directory of a case


class Case(NamedTuple):
    """A command that must fail with this exit code.

    In `args`, ``{here}`` is the directory of the case, and ``{good}`` that of the fixture `good`.
    """

    args: tuple[str, ...]
    code: int = 2
    make_files: MakeFiles | None = None
    suffix: str = ""  # distinguishes cases with the same arguments

    @property
    def name(self) -> str:
        return " ".join(self.args)[:100] + self.suffix


# Options -----------------------------------------------------------------------------------

COMMANDS = {  # valid command lines, to which cases add arguments
    "PLAN": "plan --speeds 2,2,3 --recovery 2 --rows 12",
    "ENCODE": "encode {good}/X.npy {here}/S --machines 3 --recovery 2",
    "RUN": "run {good}/store --serial --out {here}/out vectors={good}/W.npy",
    "TASK": "run {good}/store --serial --out {here}/out",
    "POWER": "run {good}/square --serial --out {here}/out power",
    "ELASTIC": "run {good}/store --elastic --out {here}/out vectors={good}/W.npy",
}

VALUES = """
PLAN --speeds 2,0,3 2,nan,3 2,1e400,3 2,1e-400,3 2,1e999999999,3 2,x,3 2,,3 1,1/0,2 ''
PLAN --recovery 0 all
PLAN --rows 0 1.5 many 9000000000000000000
PLAN --available 0,1,2 1,4 1,1,2 3-1 1-99999999999999 1--3 '' 99999999999999999999,1
PLAN --stragglers -1
ENCODE --machines 0 3.5 three 99999999999999999999
ENCODE --recovery 0
ENCODE --seed -1
ENCODE --level 9
ENCODE --shape 11 axb 0,5 11,5
ENCODE --input-dtype f4
ENCODE --memory 0 5M
ENCODE --target score
ENCODE --columns '' age,,score
ENCODE --delimiter x
ENCODE --header maybe
RUN --seed one
RUN --speeds 1,2 1,2,3,4 learned node01= node01=1,node02=0 =1 node01=1,node01=2 node01=1,2
RUN --speeds not-this-host=1
RUN --checkpoint-every 0 minute
RUN --time-limit 0 nan 01:00:00
RUN --threads 0
RUN --machines 0,1 1-4
RUN --tick 0 inf soon 1e-320
RUN --available-probability 0 1.5 nan
RUN --availability {here}/none.json {good}
RUN --availability-command false {here}/absent
RUN --availability-every 1
RUN --start-timeout 5
RUN --local 2
RUN iterations= 0 2.5 ''
RUN vectors= 3 {good}/W.npy
POWER tol= 2 0 small [1] ''
POWER checkpoint= 1
POWER vectors= {good}/W.npy
ELASTIC --local 0 all
ELASTIC --deadline 0 soon
ELASTIC --listen node1 127.0.0.1:0 127.0.0.1:1
ELASTIC --ports any
ELASTIC --start-timeout 0
ELASTIC --inject kill:4@1
"""  # each of the values gives exit code 2

LINES = """
2 --fast
2 doctor now
2 doctor {here}/none
2 plan --speeds 2,2,3 --rows 12
2 PLAN again
2 PLAN --speeds 2,2 --rows 100000000000000000000
4 PLAN --recovery 4
4 PLAN --stragglers 2
2 encode {good}/X.npy {here}/S
2 encode {good}/X.npy --machines 3 --recovery 2
2 ENCODE T
4 ENCODE --recovery 4
2 ENCODE --machines 100 --recovery 50 --code fourier
2 encode {good}/X.npy {good}/store --machines 3 --recovery 2
2 encode {good}/X.npy {good}/W.npy --machines 3 --recovery 2
2 encode {good}/X.npy {here}/a/S --machines 3 --recovery 2
2 encode {good}/X.npy '' --machines 3 --recovery 2
2 encode {good}/store {here}/S --machines 3 --recovery 2
2 encode {here}/X.npy {here}/S --machines 3 --recovery 2
2 encode {here}/a.txt {here}/S --machines 3 --recovery 2
2 encode {good}/X.npy::/a {here}/S --machines 3 --recovery 2
2 encode {good}/X.npy {good}/store --machines 3 --recovery 1 --resume
2 encode {good}/X.npy {good}/W.npy --machines 3 --recovery 2 --resume
2 ENCODE --shape 11,5 --dtype float32
2 ENCODE --shape 11,5 --input-dtype f77
2 repair {good}/store --machine 4
2 repair {good}/store --memory 1K
2 decode {good}/store {good}/W.npy
2 decode {good}/store {here}/a/out.npy
2 decode {good}/store {here}/out.txt
2 decode {good}/store {here}/out.csv::/X
2 decode {good}/store {here}/out.h5::
2 add-machine {good}/store --seed -1
2 run {good}/store
2 run {good}/store --serial
2 run {here}/none --serial --out {here}/out vectors={good}/W.npy
2 run {good} --serial --out {here}/out vectors={good}/W.npy
5 run {good}/damaged --serial --out {here}/out vectors={good}/W.npy
2 run {good}/store --serial --out {good}/W.npy vectors={good}/W.npy
2 RUN --speed-up 3
2 RUN power svd
2 RUN --resume --overwrite
4 RUN --available-probability 1e-9
2 RUN --repeat
2 RUN --availability
2 RUN --availability {good}/none.json --available-probability 0.5
2 RUN --availability-command echo --availability a.json
2 RUN --availability-command echo --availability-every 0
4 RUN --availability-command echo
2 RUN --elastic
2 TASK
2 TASK vectors={here}/none.npy
2 TASK power
2 TASK inverse
2 TASK builtins:max
2 POWER tol
2 POWER =3
4 ELASTIC --machines 2
"""


def _expand(args: list[str]) -> tuple[str, ...]:
    first, *rest = args or [""]
    return (*shlex.split(COMMANDS.get(first, first)), *rest)


def _option_cases() -> Iterator[Case]:
    for line in VALUES.strip().splitlines():
        command, option, *values = shlex.split(line)
        for value in values or [""]:
            rest = [option + value] if option.endswith("=") else [option, value]
            yield Case(_expand([command, *rest]))
    for line in LINES.strip().splitlines():
        code, *args = shlex.split(line)
        yield Case(_expand(args), int(code))
    yield Case(_expand(["ENCODE", "--machines", "9" * 5000]))
    yield Case(_expand(["encode", "{good}/X.npy", "{here}/" + "S" * 300]))


# Files -------------------------------------------------------------------------------------


def write_file(name: str, content: Any) -> MakeFiles:
    """Return a function that writes a file: bytes, text, or an array as .npy."""
    data = npy_with_array(content) if isinstance(content, np.ndarray) else content
    return lambda here: (here / name).write_bytes(data.encode() if isinstance(data, str) else data)


def npy_with_array(array: np.ndarray) -> bytes:
    """Return an .npy file with this array."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npy_with_header(shape: str, descr: str = "<f8") -> bytes:
    """Return an .npy file with any header."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}"
    return b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117).encode() + b"\n" + bytes(120)


NOT_MATRICES: dict[str, Any] = {  # contents that encode and matvec refuse
    "an empty file": b"",
    "garbage": bytes(range(256)) * 4,
    "text": "1 2 3\n4 5 6\n",
    "cut in its header": npy_with_array(np.ones((3, 5)))[:40],
    "cut in its numbers": npy_with_array(np.ones((3, 5)))[:-1],
    "of a later .npy version": b"\x93NUMPY\x09\x00" + npy_with_array(np.ones((3, 5)))[8:],
    "with a header without shape": npy_with_array(np.ones((3, 5))).replace(b"shape", b"shade"),
    "with a shape that does not end": npy_with_header("(3, (5"),
    "with a negative shape": npy_with_header("(-3, 5)"),
    "with a shape beyond all memory": npy_with_header("(99999999999999999999, 5)"),
    "with lengths whose product overflows": npy_with_header(f"({2**32}, {2**32})"),
    "with an unknown dtype": npy_with_header("(3, 5)", "<q9"),
    "of one dimension": np.ones(5),
    "of three dimensions": np.ones((3, 5, 1)),
    "without rows": np.ones((0, 5)),
    "of complex numbers": np.ones((3, 5), complex),
    "of strings": np.full((3, 5), "1.0"),
    "of objects": np.full((3, 5), {}, dtype=object),
    "of records": np.zeros((3, 5), [("a", "f8")]),
    "holding NaN": np.where(np.arange(15).reshape(3, 5) == 7, np.nan, 1.0),
    "holding infinity": np.where(np.arange(15).reshape(3, 5) == 7, -np.inf, 1.0),
}

MODULE = """
import numpy as np
NUMBER = 3
def needs(X, *, checkpoint, k): return {"result": [k]}
def takes(X, *, checkpoint, **options): return {"result": [1]}
def exits(X, *, checkpoint): raise SystemExit(0)
def words(X, *, checkpoint): return {"result": X.matvec(np.full(X.shape[1], "one"))}
def infinite(X, *, checkpoint): return {"result": X.rmatvec(np.full(X.shape[0], np.inf))}
"""
TASKS = "absent NUMBER needs,j=1 needs takes,checkpoint=1 takes,X=1 exits words infinite"


def _file_cases() -> Iterator[Case]:
    args = ["encode", "{here}/X.npy", "{here}/S", "--machines", "3", "--recovery", "2"]
    without_columns = {"without columns": np.ones((3, 0))}
    for name, content in (NOT_MATRICES | without_columns).items():
        yield Case(_expand(args), make_files=write_file("X.npy", content), suffix=f" {name}")
    for content, rest in ((1e300, ["--dtype", "float32"]), (1.7e308, ["--scaling", "none"])):
        yield Case(_expand(args + rest), make_files=write_file("X.npy", np.full((4, 5), content)))
    contents = {name: NOT_MATRICES[name] for name in ("garbage", "of one dimension", "of objects")}
    for name, content in (contents | {"too short": np.ones((3, 4))}).items():
        make = write_file("W.npy", content)
        yield Case(_expand(["TASK", "vectors={here}/W.npy"]), make_files=make, suffix=f" {name}")
    for task in TASKS.split():
        function, *options = task.split(",")
        make = write_file("my_task.py", MODULE)
        yield Case(_expand(["TASK", f"my_task:{function}", *options]), make_files=make)
    for name in ("steps.jsonl", "summary.json", "result.npy"):
        make = write_file(name, "something\n")
        yield Case(_expand(["RUN", "--out", "{here}"]), make_files=make, suffix=f" {name}")
    for name in ("logs", "logs/master.log"):
        yield Case(_expand(["RUN"]), make_files=_put_wrong_type(f"out/{name}"), suffix=f" {name}")
    for command, rest in ON_STORES.items():
        for store in ("", "{here}/none", "{good}/W.npy", "{good}"):
            yield Case((command, store, *rest) if store else (command,))
        for extra in ("too many", "--deep"):
            yield Case((command, "{good}/store", *rest, *extra.split()))
        if command not in ("info", "verify"):
            yield Case((command, "{here}/S", *rest), 5, _lose_two)


ON_STORES: dict[str, list[str]] = {  # commands, and their arguments after the store
    "info": [],
    "verify": [],
    "repair": [],
    "decode": ["{here}/out.npy"],
    "add-machine": [],
}


def _lose_two(here: Path) -> None:
    for machine in (1, 3):
        (here / "S" / f"shard-{machine:04d}.npy").unlink()


def _put_wrong_type(name: str) -> MakeFiles:
    """Return a function that puts a directory in place of a file, or the reverse."""

    def make_files(here: Path) -> None:
        path = here / name
        path.parent.mkdir(parents=True)
        if path.suffix:
            path.mkdir()
        else:
            path.touch()

    return make_files


# FIFOs, sockets and devices in place of files: reading them would block forever ------------

FIFOS = """
2 S/manifest.json info {here}/S
5 S/shard-0002.npy verify {here}/S
5 S/shard-0002.npy run {here}/S --serial --out {here}/out vectors={good}/W.npy
5 S/checksums-1.npy,S/checksums-1.copy.npy verify {here}/S
2 manifest.json encode {good}/X.npy {here} --machines 3 --recovery 2 --resume
2 X.npy encode {here}/X.npy {here}/T --machines 3 --recovery 2
2 X.csv encode {here}/X.csv {here}/T --machines 3 --recovery 2
2 X.mtx encode {here}/X.mtx {here}/T --machines 3 --recovery 2
2 X.h5 encode {here}/X.h5 {here}/T --machines 3 --recovery 2
2 X encode {here}/X {here}/T --machines 3 --recovery 2
2 X encode {here}/X {here}/T --machines 3 --recovery 2 --shape 3,4 --input-dtype '<f4'
2 out/1.npy encode {here}/out {here}/T --machines 3 --recovery 2
2 store run {here}/store --serial --out {here}/out vectors={good}/W.npy
2 out RUN
2 out/logs RUN
2 out/logs/master.log RUN
2 out/.lock RUN
2 out/steps.jsonl RUN --resume
2 out/checkpoint.npz RUN --resume
2 out/steps.jsonl RUN --overwrite
2 out/checkpoint.npz RUN --overwrite
2 W.npy TASK vectors={here}/W.npy
2 a.json RUN --availability {here}/a.json
"""


def put_special_file(names: str, kind: str = "FIFO") -> MakeFiles:
    """Return a function that puts a FIFO, a socket or a device in place of a file."""

    def make_files(here: Path) -> None:
        for name in names.split(","):
            path = here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if kind == "FIFO":
                os.mkfifo(path)
            elif kind == "socket":
                with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
                    server.bind(path.name)  # the whole path may be too long
            else:
                path.symlink_to("/dev/zero")

    return make_files


def _special_cases() -> Iterator[Case]:
    for line in FIFOS.strip().splitlines():
        code, names, *args = shlex.split(line)
        yield Case(_expand(args), int(code), put_special_file(names), f" {names}")
    for kind in ("socket", "device"):
        yield Case(("info", "{here}/S"), 2, put_special_file("S/manifest.json", kind), f" {kind}")


CASES = [*_option_cases(), *_file_cases(), *_special_cases()]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A directory with the files that cases share.

    Three stores of 3 machines, any 2 of which suffice: ``store``, ``square``, and ``damaged``
    without shard 2. ``W.npy`` has vectors for ``store``, and ``X.npy`` a matrix.
    """
    good = tmp_path_factory.mktemp("good")
    rng = np.random.default_rng(0)
    for store, shape in (("square", (5, 5)), ("store", (11, 5))):
        np.save(good / "X.npy", rng.standard_normal(shape))
        encode(good / "X.npy", good / store, 3, 2)
    shutil.copytree(good / "store", good / "damaged")
    (good / "damaged" / "shard-0002.npy").unlink()
    np.save(good / "W.npy", rng.standard_normal((3, 5)))
    return good


def files_in(directory):
    """Return the paths of all files, except those of a run."""
    found = {path.relative_to(directory) for path in directory.rglob("*")}
    return {path for path in found if path.parts[0] not in ("__pycache__", "out")}


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_gives_one_message_and_changes_no_file(case, good, call, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "my_task", raising=False)
    if case.make_files is not None:
        if "{here}/S" in case.args:
            shutil.copytree(good / "store", tmp_path / "S")
        case.make_files(tmp_path)
    args = [word.format(here=tmp_path, good=good) for word in case.args]
    before = files_in(tmp_path), files_in(good)
    code, stdout, stderr = call(args, tmp_path)
    assert code == case.code, stderr
    assert re.fullmatch(r"cec-mpi: error: [^\n]+\n", stderr)
    assert stdout == "" or args[0] in ("info", "verify")
    assert (files_in(tmp_path), files_in(good)) == before
