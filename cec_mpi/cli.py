"""The command line: one parser, one short function per command."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import cec_mpi
from cec_mpi.commands import cluster, compute, encode, store
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.launchers import detect_launcher
from cec_mpi.runtime.together import as_cec_error, complain, run_together

__all__ = ["main"]

_STARTS_MPI = ("run", "doctor")
_SHARED = ("encode", "verify", "repair", "decode", "add-machine", "stage")  # by several ranks


class _Parser(argparse.ArgumentParser):
    """A parser that raises instead of leaving: under mpirun all ranks leave together.

    Options cannot be abbreviated: a new one would change what an old script means.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    launcher = detect_launcher()
    several = launcher is not None and launcher.size > 1
    command = argv[0] if argv else ""
    parallel = command in _STARTS_MPI or (command in _SHARED and several)
    parallel = parallel and not {"-h", "--help", "--serial"} & set(argv)
    if not parallel and launcher is not None and launcher.rank != 0:
        return 0  # these commands are one process's work, and print once
    try:
        arguments = build_parser().parse_args(argv)
        perform: Callable[[argparse.Namespace], int] = arguments.command
    except InputError as error:
        return _all_leave_with(error) if parallel else _leave_with(error)
    if not parallel:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # tidy up first
    warnings.showwarning = _warn
    try:
        code = perform(arguments)
        if sys.stdout is not None:  # as it is when standard output was closed before
            sys.stdout.flush()
        return code
    except CecError as error:
        return _leave_with(error)
    except BrokenPipeError:  # the reader of our output has seen enough
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        return _leave_with(as_cec_error(error))
    except (KeyboardInterrupt, SystemExit) as error:
        for note in getattr(error, "__notes__", ()):
            complain(note)
        return error.code if isinstance(error, SystemExit) else 130  # type: ignore[return-value]


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"cec-mpi: warning: {message}\n")


def _drop_output() -> None:
    """Let what is still to be written go nowhere, so that leaving does not fail on it."""
    with contextlib.suppress(
        OSError, ValueError, AttributeError
    ):  # no file descriptor: nothing to drop
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave_with(error: CecError) -> int:
    complain(error)
    return error.exit_code


def _all_leave_with(error: CecError) -> int:
    def fail(_: object) -> int:
        raise error

    return run_together(fail)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(prog="cec-mpi", description=cec_mpi.__doc__.split("\n")[0])
    parser.add_argument("--version", action="version", version=f"cec_mpi {cec_mpi.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        encode.add_encode,
        store.add_info,
        store.add_verify,
        store.add_repair,
        store.add_decode,
        store.add_add_machine,
        store.add_stage,
        compute.add_plan,
        compute.add_run,
        compute.add_doctor,
        cluster.add_slurm,
        cluster.add_hostfile,
        encode.add_bench,
    ):
        add(commands)
    return parser
