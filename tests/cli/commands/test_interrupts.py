"""Signals during a command leave no traceback and no incomplete file."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PLAN = ["plan", "--speeds", "1,2,3", "--recovery", "2", "--rows", "100", "--figure", "plan.svg"]
REPORT = ["report", "absent", "--out", "page.html"]
# A program that is sent a signal when it imports a module, or when it first calls os.fsync.
AMID = """
import os, signal, sys

def strike(*_):
    global strike
    number, strike = signal.Signals[{signal!r}], lambda *_: None
    os.kill(os.getpid(), number)

class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            strike()

sync = os.fsync
def fsync(descriptor):
    if {module!r} == "os.fsync":
        strike()
    sync(descriptor)

os.fsync = fsync
sys.meta_path.insert(0, Finder())
sys.argv[1:] = {words!r}
from cec_mpi.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("words", "module", "number", "code"),
    [
        (PLAN, "cec_mpi.cli", "SIGINT", -signal.SIGINT),
        (PLAN, "argparse", "SIGINT", -signal.SIGINT),
        (PLAN, "cec_mpi.cli.commands.explain", "SIGINT", 130),
        (PLAN, "numpy._core.multiarray", "SIGINT", 130),
        (PLAN, "os.fsync", "SIGINT", 130),
        (PLAN, "os.fsync", "SIGHUP", 129),
        (PLAN, "os.fsync", "SIGTERM", 143),
        (REPORT, "cec_mpi.report.data", "SIGINT", 130),
    ],
)
def test_a_signal_during_a_command(tmp_path, words, module, number, code):
    program = AMID.format(signal=number, module=module, words=words)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert list(tmp_path.iterdir()) == []
