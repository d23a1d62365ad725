"""Signals during a command leave no traceback and no incomplete file."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PLAN = ["plan", "--speeds", "1,2,3", "--recovery", "2", "--rows", "100", "--figure", "plan.svg"]
REPORT = ["report", "absent", "--out", "page.html"]
# A program that sends itself a signal when it imports a module or first calls os.fsync.
PROGRAM = """
import os, signal, sys

def send_signal(*_):
    global send_signal
    number, send_signal = signal.Signals[{signal!r}], lambda *_: None
    os.kill(os.getpid(), number)

class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            send_signal()

sync = os.fsync
def fsync(descriptor):
    if {module!r} == "os.fsync":
        send_signal()
    sync(descriptor)

os.fsync = fsync
sys.meta_path.insert(0, Finder())
sys.argv[1:] = {args!r}
from cec_mpi.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("args", "module", "name", "code"),
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
def test_a_signal_ends_a_command_without_output_or_files(tmp_path, args, module, name, code):
    program = PROGRAM.format(signal=name, module=module, args=args)
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (code, "", "")
    assert list(tmp_path.iterdir()) == []
