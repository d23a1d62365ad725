"""Arguments and helpers that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cec_mpi.cli.commands.parser import Parser, Processes
from cec_mpi.cli.run.options import RunOptions
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.elastic import ElasticOptions
from cec_mpi.runtime.options.option import add_flag, add_option
from cec_mpi.runtime.processes.launcher import launcher_of_ranks

if TYPE_CHECKING:
    from cec_mpi.store.work import Runner


def share_work(activity: str, body: Callable[[Runner], int], arguments: argparse.Namespace) -> int:
    """Call `body` with a runner that uses this process's threads or, under a launcher, all ranks.

    Under a launcher this is collective, and only rank 0 calls `body`.

    Parameters
    ----------
    activity : str
        Name of the work in the progress display.
    body : callable
    arguments : argparse.Namespace
        Arguments of the command; ``progress`` and ``start_timeout`` are read.
    """
    from cec_mpi.report.live.transfer import show_transfer
    from cec_mpi.runtime.processes.start import run_on_ranks

    progress = arguments.progress
    if launcher_of_ranks() is None:
        from cec_mpi.store.work import LocalRunner

        with show_transfer(activity, progress) as on_progress:
            return body(LocalRunner(on_progress))

    def share_with_ranks(comm: Any) -> int:
        from cec_mpi.encoding.collective import WORK_TYPES
        from cec_mpi.runtime.wire.collective.shared_work import run_shared

        with show_transfer(activity if comm.rank == 0 else "", progress) as on_progress:
            return run_shared(comm, body, WORK_TYPES, on_progress)

    return run_on_ranks(share_with_ranks, arguments.start_timeout)


def set_store_command(parser: Parser, perform: Callable[[argparse.Namespace], int]) -> None:
    """Add the argument STORE, set the command, and let several ranks share its work."""
    parser.add_argument("store", metavar="STORE", help="directory made by encode")
    parser.set_defaults(command=perform)
    allow_shared_work(parser)


def allow_shared_work(parser: Parser) -> None:
    """Let several ranks share the work of a command, and add the options for that."""
    parser.processes = Processes.SHARED
    add_option(parser, ElasticOptions, "start_timeout")
    add_option(parser, RunOptions, "progress")


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Add the option --memory."""
    add_flag(
        parser,
        "--memory SIZE",
        "memory that each process may use in addition to Python itself (default: 512M)",
        values.size,
        default=values.size("512M"),
    )


def add_json(parser: argparse.ArgumentParser, text: str = "print one JSON object") -> None:
    """Add the option --json."""
    add_flag(parser, "--json", text, default=False)
