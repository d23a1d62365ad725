"""Python without asserts and docstrings (-OO, PYTHONOPTIMIZE=2) runs every command."""

import os
import subprocess
import sys

import numpy as np
import pytest

from cec_mpi.cli import build_parser
from cec_mpi.runtime.processes.launcher import remove_launcher_variables
from helpers.waiting import LIMIT

pytestmark = pytest.mark.usefixtures("no_launcher")

PROGRAM = """
import sys
from cec_mpi.cli import main

assert False, "asserts are not left out"
for line in sys.stdin.read().splitlines():
    try:
        code = main(line.split())
    except SystemExit as leaving:
        code = leaving.code
    if code:
        sys.exit(f"cec-mpi {line} left with {code}")
print("all done")
"""

STORE = """\
encode X.npy store --machines 4 --recovery 2
info store
verify store
repair store
decode store again.npy
add-machine store
plan --speeds 1,1,2 --recovery 2 --rows 9 --exact
run store --serial --out a vectors=X.npy
run store --serial --out b power --cache copies
run store --serial --out c svd k=2
slurm run store --out d
doctor store"""


def test_every_command_runs_without_docstrings(tmp_path):
    np.save(tmp_path / "X.npy", np.eye(12))
    commands = next(action.choices for action in build_parser()._actions if action.choices)
    helps = ["--help", "--version", *(f"{command} --help" for command in commands)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join([*helps, STORE]),
        env=remove_launcher_variables(os.environ) | {"PYTHONOPTIMIZE": "2"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.endswith("all done\n")
