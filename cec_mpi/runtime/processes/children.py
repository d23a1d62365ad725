"""Python processes of this computer that end when the process that has started them ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cec_mpi.runtime.processes.launcher import without_launcher

# It imports this copy of the package; -P keeps modules of the working directory out. If the parent
# is killed the child gets SIGTERM, which ends it while it loads modules, and makes a machine leave
# later; one that computes ends 4 s later. No connection shows that: processes forked from the
# parent keep it open.
_PROGRAM = """
import importlib, os, signal, sys, threading, time
def end_with_parent():
    while os.getppid() == int(sys.argv[2]):
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(4)
    os._exit(3)
threading.Thread(target=end_with_parent, daemon=True).start()
sys.path.insert(0, sys.argv[1]); import cec_mpi; del sys.path[0]
importlib.import_module(sys.argv[3]).main(sys.argv[4:], int(sys.argv[2]))
"""
_PACKAGE_ROOT = str(Path(__file__).absolute().parents[3])


def start_child(module: str, words: Sequence[str] = (), *, stdin: int) -> subprocess.Popen[bytes]:
    """Start a Python process that calls ``main(words, parent)`` of a module of this package.

    It gets SIGTERM when this process has ended, however that happened, and ends 4 s later at most.

    Parameters
    ----------
    module : str
    words : sequence of str
        Everybody on this computer can read them.
    stdin : int
        Its standard input, as for `subprocess.Popen`.
    """
    parent = str(os.getpid())
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, _PACKAGE_ROOT, parent, module, *words],
        stdin=stdin,
        env=without_launcher(os.environ),
        start_new_session=True,  # so that Ctrl-C reaches only this process
    )
