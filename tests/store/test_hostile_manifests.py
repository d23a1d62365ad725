"""Manifests that somebody has edited, with the checksum that fits them.

Each command accepts such a manifest and ends, or refuses it with one message. Memory is never
taken for what a manifest says, so the commands run with a limit.
"""

import json
import subprocess
import sys

import numpy as np

from cec_mpi import encode
from cec_mpi.cli import main
from cec_mpi.store.coded.manifest import shard_header
from cec_mpi.store.manifest_files import content_checksum

PROGRAM = """
import contextlib, copy, io, json, random, resource, shutil, sys
from pathlib import Path

from cec_mpi.cli import main
from cec_mpi.store.coded.manifest import shard_header
from cec_mpi.store.manifest_files import content_checksum
import cec_mpi.cli.run.task_run, cec_mpi.store.operations.repair  # before memory is limited

good, scratch, seed, count = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])
written = json.loads((good / "manifest.json").read_text())
rng = random.Random(seed)
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

VALUES = [
    None, True, False, 0, -1, 1, 2, 99, 2**31, 2**40, 2**63, -(2**63), 10**400, 0.0, -0.0, 0.5,
    1e-300, 1e300, float("nan"), float("inf"), "", "1", "x" * 1000, "\\u202e\\x1b[2J\\n\\0",
    "\\ud800", "../../S", [], [[]], [0], [None] * 3, [1] * 100_000, {}, {"a": 1},
]


def places(value, above=()):
    if above:
        yield above
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*above, key))


def changed():
    content = copy.deepcopy(written)
    *above, last = rng.choice(list(places(content)))
    inner = content
    for key in above:
        inner = inner[key]
    old = inner[last]
    kind = rng.choice(["value"] * 5 + ["like it", "missing", "more", "twice"])
    if kind == "value":
        inner[last] = rng.choice(VALUES)
    elif kind == "like it":
        inner[last] = rng.choice([str(old), [old], {"0": old}, *(
            [old + 1, -old, 2 * old, float(old)] if isinstance(old, (int, float)) else
            [old * 2, old[:-1], old[::-1]] if isinstance(old, (str, list)) else [])])
    elif kind == "missing":
        del inner[last]
    elif kind == "twice" and isinstance(inner, list):
        inner.insert(last, old)
    else:
        (inner if isinstance(inner, dict) else content)["more"] = old
    return content, f"{[*above, last]}: {kind}"


def of_another_size():
    content = copy.deepcopy(written)
    rows, columns = rng.choice([1, 11, 2**20, 2**40, 2**59]), rng.choice([1, 5, 2**20, 2**40])
    each = -(-rows // content["recovery"])
    header = shard_header(each, columns, content["dtype"])
    content |= {"rows": rows, "columns": columns, "rows_per_shard": each, "shard_header": header}
    content["grid"] = {
        "block_rows": rng.choice([1, each, max(1, each // 2)]),
        "block_columns": rng.choice([columns, 1, 128, max(1, columns // 2)]),
    }
    for shard in content["shards"]:
        shard["bytes"] = len(header) + each * columns * 8
    return content, f"{rows} x {columns}, {content['grid']}"


COMMANDS = {
    "info": "info S", "info --json": "info S --json", "verify": "verify S",
    "decode": "decode S Y.npy", "run": "run S --out out pca k=2 --serial",
    "repair": "repair S", "add-machine": "add-machine S",
}


def attempt(name):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(COMMANDS[name].split())
    errors = err.getvalue().count("error:")
    refusals = (2, 3, 5) if name == "run" else (2, 5)  # 3: a machine cannot start
    right = (code == 0 and errors == 0) or (code in refusals and errors == 1)
    if not right or "Traceback" in err.getvalue() or len(err.getvalue()) > 4000:
        print(json.dumps([what, name, code, err.getvalue()[-600:]]), flush=True)
    return code


for number in range(count):
    directory = scratch / str(number)
    directory.mkdir()
    with contextlib.chdir(directory):
        shutil.copytree(good, "S")
        content, what = rng.choice([changed, changed, of_another_size])()
        content["sha256"] = content_checksum(content)
        for name in ("manifest.json", "manifest.copy.json"):
            Path("S", name).write_text(json.dumps(content))
        accepted = attempt("info") == 0
        for name in COMMANDS if accepted else rng.sample(list(COMMANDS), 1):
            attempt(name)
    shutil.rmtree(directory)
print(json.dumps("all tried"))
"""


def test_an_edited_manifest_is_harmless_or_refused_with_one_message(tmp_path):
    X = np.random.default_rng(0).standard_normal((11, 5))
    encode(X, tmp_path / "good", 4, 2)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "good", scratch, "1", "40"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == ["all tried"], done.stderr


def test_a_manifest_of_columns_that_no_disk_has_room_for_is_damaged(tmp_path, capsys):
    encode(np.ones((12, 5)), tmp_path / "S", 4, 2)
    content = json.loads((tmp_path / "S" / "manifest.json").read_text())
    header = shard_header(6, 2**40, "float64")
    content |= {"columns": 2**40, "shard_header": header}
    content["grid"] = {"block_rows": 1, "block_columns": 2**17}
    for shard in content["shards"]:
        shard["bytes"] = len(header) + 6 * 2**40 * 8
    content["sha256"] = content_checksum(content)
    for name in ("manifest.json", "manifest.copy.json"):
        (tmp_path / "S" / name).write_text(json.dumps(content))
    for command in ("info", "verify", "repair", "add-machine"):
        assert main([command, str(tmp_path / "S")]) == 5
        assert (
            "manifest.json is damaged: no file has the size that it states"
            in capsys.readouterr().err
        )
