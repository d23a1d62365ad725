"""Child processes, which end when the process that started them ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cec_mpi.runtime.processes.launcher import remove_launcher_variables

# The child imports this copy of the package; -P excludes modules in the working directory. If the
# parent is killed, the child sends itself SIGTERM, which ends it during imports and later makes a
# machine leave; if it is still computing after 4 s, it exits. The child polls its parent, because
# processes that were forked from the parent would keep a connection open.
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


def start_child(
    module: str, arguments: Sequence[str] = (), *, stdin: int, stdout: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a Python process that calls ``main(arguments, parent)`` of a module of this package.

    It gets SIGTERM when this process has ended for any reason, and exits within 4 s.

    Parameters
    ----------
    module : str
    arguments : sequence of str
        Command-line arguments, which all users of this computer can read.
    stdin, stdout : int
        Standard input and output (see `subprocess.Popen`).
    """
    parent = str(os.getpid())
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, _PACKAGE_ROOT, parent, module, *arguments],
        stdin=stdin,
        stdout=stdout,
        env=remove_launcher_variables(os.environ),
        start_new_session=True,  # so that Ctrl-C reaches only this process
    )
