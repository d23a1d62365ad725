"""Edited manifests with a matching checksum.

Each command accepts such a manifest, or refuses it with one message. No command allocates memory
because of a size that only the manifest states, so the commands run with a limit.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

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
import cec_mpi.cli.run.task_run, cec_mpi.store.operations.repair, scipy.sparse  # before the limit

template, scratch, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
manifest = json.loads((template / "manifest.json").read_text())
rng = random.Random(1)
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

VALUES = [
    None, True, 0, -1, 1, 2, 99, 2**31, 2**40, 2**63, -(2**63), 10**400, -0.0, 0.5, 1e-300, 1e300,
    float("nan"), float("inf"), "", "1", "x" * 1000, "\\u202e\\x1b[2J\\n\\0", "\\ud800", "../../S",
    [], [[]], [0], [None] * 3, [1] * 100_000, {}, {"a": 1},
]


def entries(value, above=()):
    for key in value if isinstance(value, dict) else range(len(value)):
        yield (*above, key)
        if isinstance(value[key], (dict, list)):
            yield from entries(value[key], (*above, key))


def change_entry(content):
    *above, last = rng.choice(list(entries(content)))
    for key in above:
        content = content[key]
    if rng.random() < 0.2:
        del content[last]
    elif isinstance(content[last], (int, float)) and rng.random() < 0.3:
        content[last] = rng.choice([content[last] + 1, -content[last], 2 * content[last]])
    else:
        content[last] = rng.choice(VALUES)


def change_size(content):
    rows, columns = rng.choice([1, 11, 2**20, 2**40, 2**59]), rng.choice([1, 5, 2**20, 2**40])
    height = -(-rows // content["recovery"])
    header = shard_header(height, columns, content["dtype"])
    content |= {"rows": rows, "columns": columns, "rows_per_shard": height, "shard_header": header}
    content["grid"] = {
        "block_rows": rng.choice([1, height, max(1, height // 2)]),
        "block_columns": rng.choice([columns, 1, 128, max(1, columns // 2)]),
    }
    for shard in content["shards"]:
        shard["bytes"] = len(header) + height * columns * 8


def run(command):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command.split())
    errors = err.getvalue().count("error:")
    codes = (2, 3, 5) if command.startswith("run") else (2, 5)  # 3: a machine cannot start
    is_expected = errors == (code != 0) and code in (0, *codes)
    if not is_expected or "Traceback" in err.getvalue() or len(err.getvalue()) > 4000:
        print(json.dumps([command, code, err.getvalue()[-600:], content]), flush=True)
    return code


out = "Y.npz" if "replicas" in manifest else "Y.npy"
COMMANDS = [
    "info S --json", "verify S", f"decode S {out}", "run S --out out pca k=2 --serial",
    "repair S", "add-machine S",
]
for number in range(count):
    content = copy.deepcopy(manifest)
    if "grid" in content and number % 3 == 0:
        change_size(content)
    else:
        change_entry(content)
    content["sha256"] = content_checksum(content)
    directory = scratch / str(number)
    directory.mkdir()
    with contextlib.chdir(directory):
        shutil.copytree(template, "S")
        for name in ("manifest.json", "manifest.copy.json"):
            Path("S", name).write_text(json.dumps(content))
        is_accepted = run("info S") == 0
        for command in COMMANDS if is_accepted else [rng.choice(COMMANDS)]:
            run(command)
    shutil.rmtree(directory)
print(json.dumps("all tried"))
"""


@pytest.mark.parametrize(
    ("X", "options"),
    [
        (np.random.default_rng(0).standard_normal((11, 5)), {"recovery": 2}),
        (csr_array(np.arange(55.0).reshape(11, 5)), {"copies": 2}),
    ],
    ids=["coded", "replicated"],
)
def test_an_edited_manifest_is_accepted_or_refused_with_one_message(tmp_path, X, options):
    encode(X, tmp_path / "template", 4, **options)
    (tmp_path / "scratch").mkdir()
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "template", tmp_path / "scratch", "30"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert [json.loads(line) for line in process.stdout.splitlines()] == ["all tried"], (
        process.stderr
    )


def test_a_manifest_that_states_impossible_sizes_is_damaged(tmp_path, capsys):
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
