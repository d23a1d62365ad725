"""A run that is going elsewhere, from its files: top."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cec_mpi.options import values
from cec_mpi.options.option import add_flag


def add_top(commands: Any) -> None:
    """``cec-mpi top``."""
    p = commands.add_parser(
        "top",
        help="show a run that is going elsewhere, from its files",
        description="Show how far a run is and what its machines do, until it is over; q leaves.",
    )
    p.add_argument("out", metavar="DIR", type=values.path, help="of the results of cec-mpi run")
    add_flag(p, "--every SECONDS", "between two looks (default: 1)", values.seconds, default=1.0)
    add_flag(p, "--once", "print it as it is now", default=False)
    p.set_defaults(command=_top)


def _top(arguments: argparse.Namespace) -> int:
    from cec_mpi.live.top import top

    top(Path(arguments.out), arguments.every, arguments.once)
    return 0
