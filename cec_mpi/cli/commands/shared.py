"""Functions that several commands on stores share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cec_mpi.cli.commands.parser import Parser, Processes
from cec_mpi.report.live.transfer import transfer
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import add_flag
from cec_mpi.runtime.processes.launcher import launcher_of_ranks
from cec_mpi.runtime.processes.start import run_together
from cec_mpi.text import few, plural, printable, size_words

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import Manifest, MissingValues
    from cec_mpi.store.work import Runner

_LISTED = 8
_LONGEST = 24  # characters of a name


def with_runner(doing: str, body: Callable[[Runner], int], arguments: argparse.Namespace) -> int:
    """Call `body` with a runner of this process' threads, or on rank 0 of those of all ranks.

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

    def together(comm: Any) -> int:
        from cec_mpi.runtime.wire.collective.shared_work import run_shared

        with transfer(doing if comm.rank == 0 else "", choice) as watch:
            return run_shared(comm, body, watch)

    return run_together(together, arguments.start_timeout)


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


def described(manifest: Manifest) -> str:
    """Describe a store in one line."""
    from cec_mpi.store.format.manifest import CopiesManifest

    if isinstance(manifest, CopiesManifest):
        layout, size = manifest.replicas, sum(shard.bytes for shard in manifest.shards)
        needed = manifest.enough  # L of a code that tolerates as many losses
        share = -(-manifest.rows // needed) * manifest.columns * manifest.itemsize
        return (
            f"{manifest.rows} x {manifest.columns} {manifest.dtype}, "
            f"{plural(int(layout.entries[-1]), 'nonzero')}, on {machines_of(manifest)}; "
            f"{code_of(manifest)}; {size_words(size)} (a code with --recovery {needed}: "
            f"{size_words(layout.machines * share)})"
        )
    return (
        f"{manifest.rows} x {manifest.columns} {manifest.dtype} on {machines_of(manifest)}; "
        f"{plural(manifest.rows_per_shard, 'row')} per shard; {code_of(manifest)}"
    )


def machines_of(manifest: Manifest) -> str:
    """Return the number of machines of a store, and how many of them suffice."""
    machines, enough = manifest.code.machines, manifest.enough
    return f"{plural(machines, 'machine')}, any {enough} of them suffice{'s' * (enough == 1)}"


def code_of(manifest: Manifest) -> str:
    """Return the code of a store with its condition number."""
    if manifest.copies is not None:
        return f"each row on {plural(manifest.copies, 'machine')}"
    code, found = manifest.code, manifest.code.conditioning
    family = f"{'systematic ' if code.systematic else ''}{printable(code.family)}"
    worst = f"{'worst' if found.complete else 'worst found'} {found.worst:.1f}"
    return f"{family} code, condition number {found.median:.1f} ({worst})"


def losses_of(
    copies: int, lost: Mapping[int, float], fatal: Sequence[Sequence[int]]
) -> list[tuple[str, str]]:
    """Return which losses end a run with copies of sparse rows, as facts.

    Parameters
    ----------
    copies : int
        Machines that hold each row, of those that are available.
    lost : mapping of int to float
        Probability that so many random machines hold all copies of some rows.
    fatal : sequence of sequences of int
        The sets of machines that hold all copies of some rows.
    """
    may = f"any {plural(copies - 1, 'machine')}" if copies > 1 else "no machine"
    chances = [f"{share:.1%} ({n} machines)" for n, share in lost.items()]
    often = f"; random losses end a run with probability {', '.join(chances)}" if lost else ""
    sets = few([" ".join(map(str, each)) for each in fatal], _LISTED)
    return [
        ("losses", f"{may} may leave{often}"),
        ("", f"a run ends when all machines of one of these sets have left: {sets}"),
    ]


def balance_of(mean: float, worst: float, away: int) -> tuple[str, str]:
    """Return how well work can be balanced with copies of sparse rows, as a fact."""
    return (
        "balance",
        f"a step takes {mean:.3f} times as long as if all machines held all of X, at most "
        f"{worst:.3f} times (speeds up to twice or half as expected, "
        f"{plural(away, 'machine')} away)",
    )


def missing_line(missing: MissingValues) -> str:
    """Return how many missing values a table had, and what was done with them."""
    if not missing.rows:
        return f"none (--missing {missing.treatment})"
    left_out = f"{plural(missing.dropped, 'row')} left out"
    done = left_out
    if missing.treatment == "mean":
        done = "replaced by the mean of the column"
        if missing.dropped:
            done += f", {left_out} because a target was missing"
    found = f"in {plural(missing.rows, 'row')} and {plural(missing.columns, 'column')}"
    return f"{found}: {done} (--missing {missing.treatment})"


def column_line(manifest: Manifest) -> str:
    """Return the number of columns of X, with the first and last of their names."""
    names = [
        (name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}...") or "(no name)"
        for name in manifest.column_names
    ]
    if len(names) > _LISTED + 1:
        names = [*names[: _LISTED - 1], "...", names[-1]]
    shown = printable(", ".join(names).replace("\n", " "))
    return plural(manifest.columns, "column") + (f": {shown}" if shown else " without names")
