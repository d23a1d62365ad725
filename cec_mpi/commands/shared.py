"""What several commands on stores have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cec_mpi import values
from cec_mpi.progress import transfer
from cec_mpi.runtime.launchers import detect_launcher
from cec_mpi.runtime.together import run_together

if TYPE_CHECKING:
    from cec_mpi.store.manifest import Manifest
    from cec_mpi.store.work import Runner

__all__ = ["add_memory", "described", "with_runner"]


def with_runner(doing: str, body: Callable[[Runner], int]) -> int:
    """Do `body` with the threads of this process, or on rank 0 with those of all ranks."""
    launcher = detect_launcher()
    if launcher is None or launcher.size == 1:
        from cec_mpi.store.work import LocalRunner

        with transfer(doing) as watch:
            return body(LocalRunner(watch))

    def together(comm: Any) -> int:
        from cec_mpi.runtime.parallel import run_shared

        with transfer(doing if comm.rank == 0 else "") as watch:
            return run_shared(comm, body, watch)

    return run_together(together)


def add_memory(p: argparse.ArgumentParser) -> None:
    """Give a command the option --memory."""
    p.add_argument(
        "--memory",
        type=values.size,
        default=values.size("512M"),
        metavar="SIZE",
        help="the most that each process takes above a bare Python (default: 512M)",
    )


def described(manifest: Manifest) -> str:
    """A store in one line."""
    code = manifest.code
    return (
        f"{manifest.rows} x {manifest.columns} {manifest.dtype} on {code.machines} machines, any "
        f"{code.recovery} of them enough; {manifest.rows_per_shard} rows per shard; "
        f"{'systematic ' if code.systematic else ''}{code.family} code, condition number "
        f"{code.conditioning.median:.1f} (worst {code.conditioning.worst:.1f})"
    )
