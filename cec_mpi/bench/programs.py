"""Programs that are started to be measured: in time to their end, with no process left behind."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from cec_mpi.errors import InputError, MachineError
from cec_mpi.processes.launcher import OPEN_MPI
from cec_mpi.processes.library import maker_of

_SIGNAL_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_ENDING = 10.0  # seconds that a program has to end in when it is told to


def mpirun(ranks: int) -> list[str]:
    """The words before a program that start so many ranks of it on this computer.

    Raises
    ------
    InputError
        There is no mpirun.
    """
    places = os.pathsep.join(
        filter(None, [os.environ.get("PATH"), str(Path(sys.executable).parent)])
    )
    names = ("mpirun", "mpiexec")
    path = next(filter(None, (shutil.which(name, path=places) for name in names)), None)
    if path is None:
        raise InputError("no mpirun on PATH, which would start the ranks: expected that of the MPI")
    with Path(path).open("rb") as file:
        script = file.read(2) == b"#!"
    if script:  # as Intel's, which does not hand signals on to the program that it starts
        path = shutil.which("mpiexec.hydra", path=places) or path
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    crowded = ["--oversubscribe"] if maker_of(said.stdout) == OPEN_MPI else []
    return [path, *crowded, "-n", str(ranks)]


def run_to_end(
    command: Sequence[str],
    limit: float,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a program prints; what it complains of goes where this process's complaints go.

    It is ended, with all that it has started, when it takes too long, or when this process is
    told to leave. Where this process is killed, the kernel tells the program to end.

    Parameters
    ----------
    command : sequence of str
    limit : float
        Seconds.
    directory : Path, optional
        Where it works.
    environment : mapping, optional

    Raises
    ------
    MachineError
        It took longer, or failed.
    """
    name = Path(command[0]).name
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=directory,
        env=environment,
        start_new_session=True,  # Ctrl-C is for this process alone, which then ends that one
        preexec_fn=_ending_with(os.getpid()),
    ) as process:
        try:
            printed, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise MachineError(f"{name}: no end after {limit:g} seconds (--limit)") from None
        finally:
            _end(process)
    if process.returncode:
        raise MachineError(f"{name}: ended with code {process.returncode}")
    return printed


def _ending_with(parent: int) -> Callable[[], None] | None:
    """What a program does first, so that it does not outlive its parent."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_SIGNAL_WITH_PARENT, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it has ended before that was asked for
            os._exit(1)

    return ask


def _end(process: subprocess.Popen[str]) -> None:
    """End a program, if it has not ended, and all that it has started."""
    if process.poll() is not None:
        return
    started = []
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDING)
    for each in started:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.kill()
    process.wait()
    psutil.wait_procs(started, _ENDING)
