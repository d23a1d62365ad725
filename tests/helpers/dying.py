"""Kill a fork of this process during a call."""

import os
import signal
from collections.abc import Callable

from cec_mpi.store.work import LocalRunner


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingRunner(LocalRunner):
    """A runner that dies before any block is encoded."""

    run = die


def run_until_death(function: Callable[[], object]) -> None:
    """Call a function in a fork, and wait until the fork dies."""
    child = os.fork()
    if not child:
        try:
            function()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
