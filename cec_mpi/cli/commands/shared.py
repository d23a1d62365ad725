"""Functions that several commands on stores share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cec_mpi.cli.commands.parser import Parser, Processes
from cec_mpi.report.live.transfer import transfer
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import add_flag
from cec_mpi.runtime.processes.launcher import launcher_of_ranks
from cec_mpi.runtime.processes.start import run_together

if TYPE_CHECKING:
    from cec_mpi.store.work import Runner

_LISTED = 8
_LONGEST = 24  # characters of a name


def with_runner(doing: str, body: Callable[[Runner], int], arguments: argparse.Namespace) -> int:
    """Call `body` with a runner of this process's threads, or on rank 0 with one of all ranks.

    Parameters
    ----------
    doing : str
        Name of the work in the display of progress.
    body : callable
    arguments : argparse.Namespace
        Arguments of the command; ``progress`` and ``start_timeout`` are read.
    """
    choice = arguments.progress
    if launcher_of_ranks() is None:
        from cec_mpi.store.work import LocalRunner

        with transfer(doing, choice) as watch:
            return body(LocalRunner(watch))

    def on_ranks(comm: Any) -> int:
        from cec_mpi.encoding.collective import WORKS
        from cec_mpi.runtime.wire.collective.shared_work import run_shared

        with transfer(doing if comm.rank == 0 else "", choice) as watch:
            return run_shared(comm, body, WORKS, watch)

    return run_together(on_ranks, arguments.start_timeout)


def add_store_command(
    commands: Any, name: str, perform: Callable[[argparse.Namespace], int], **texts: str
) -> Parser:
    """Add a command on a store that several ranks may share."""
    p: Parser = commands.add_parser(name, **texts)
    p.processes = Processes.SHARED
    p.add_argument("store", metavar="STORE", help="a directory that encode made")
    p.set_defaults(command=perform)
    return p


def add_memory(p: argparse.ArgumentParser) -> None:
    """Give a command the option --memory."""
    add_flag(
        p,
        "--memory SIZE",
        "memory that each process may use in addition to Python itself (default: 512M)",
        values.size,
        default=values.size("512M"),
    )


def add_json(p: argparse.ArgumentParser, text: str = "print one JSON object") -> None:
    """Give a command the option --json."""
    add_flag(p, "--json", text, default=False)
