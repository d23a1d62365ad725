"""What several commands on stores have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cec_mpi.commands.parser import Parser, Processes
from cec_mpi.live.transfer import transfer
from cec_mpi.options import values
from cec_mpi.options.option import add_flag
from cec_mpi.processes.launcher import detect_launcher
from cec_mpi.processes.together import run_together
from cec_mpi.text import plural, printable

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import Manifest
    from cec_mpi.store.work import Runner

_LISTED = 8
_LONGEST = 24  # characters of a name


def with_runner(doing: str, body: Callable[[Runner], int], arguments: argparse.Namespace) -> int:
    """Do `body` with the threads of this process, or on rank 0 with those of all ranks.

    Parameters
    ----------
    doing : str
        As people read it.
    body : callable
    arguments : argparse.Namespace
        Of a command that ranks may share: how progress is shown, and how long they have to start.
    """
    choice = arguments.progress
    launcher = detect_launcher()
    if launcher is None or launcher.size == 1:
        from cec_mpi.store.work import LocalRunner

        with transfer(doing, choice) as watch:
            return body(LocalRunner(watch))

    def together(comm: Any) -> int:
        from cec_mpi.processes.shared_work import run_shared

        with transfer(doing if comm.rank == 0 else "", choice) as watch:
            return run_shared(comm, body, watch)

    return run_together(together, arguments.start_timeout)


def add_store_command(
    commands: Any, name: str, perform: Callable[[argparse.Namespace], int], **texts: str
) -> Parser:
    """A command on a store that several ranks may share."""
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
        "the most that each process takes above a bare Python (default: 512M)",
        values.size,
        default=values.size("512M"),
    )


def add_json(p: argparse.ArgumentParser, text: str = "print one JSON object") -> None:
    """Give a command the option --json."""
    add_flag(p, "--json", text, default=False)


def described(manifest: Manifest) -> str:
    """A store in one line."""
    code = manifest.code
    family = f"{'systematic ' if code.systematic else ''}{printable(code.family)}"
    return (
        f"{manifest.rows} x {manifest.columns} {manifest.dtype} on "
        f"{plural(code.machines, 'machine')}, any "
        f"{code.recovery} of them enough; {plural(manifest.rows_per_shard, 'row')} per shard; "
        f"{family} code, condition number {code.conditioning.median:.1f} "
        f"({'worst' if code.conditioning.complete else 'worst found'} "
        f"{code.conditioning.worst:.1f})"
    )


def column_line(manifest: Manifest) -> str:
    """How many columns X has, and the first and last of their names."""
    names = [
        (name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}...") or "(no name)"
        for name in manifest.column_names
    ]
    if len(names) > _LISTED + 1:
        names = [*names[: _LISTED - 1], "...", names[-1]]
    shown = printable(", ".join(names).replace("\n", " "))
    return plural(manifest.columns, "column") + (f": {shown}" if shown else " without names")
