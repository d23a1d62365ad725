"""The command hostfile."""

from __future__ import annotations

import argparse
import os
from typing import Any

from cec_mpi.cluster.hostfile import FORMATS, hostfile_text, hosts_of_job, read_host
from cec_mpi.errors import InputError
from cec_mpi.options.option import add_flag
from cec_mpi.terminal import put


def add_hostfile(commands: Any) -> None:
    """``cec-mpi hostfile``."""
    p = commands.add_parser("hostfile", help="write a hostfile for mpirun")
    add_flag(p, "--format", "of which MPI", required=True, choices=FORMATS)
    add_flag(p, "--from-slurm", "of the allocation that this process is in", default=False)
    p.add_argument("hosts", nargs="*", metavar="HOST:RANKS", help="as node01:4")
    p.set_defaults(command=_hostfile)


def _hostfile(arguments: argparse.Namespace) -> int:
    if arguments.from_slurm:
        if arguments.hosts:
            raise InputError(f"--from-slurm: expected no hosts with it, found {arguments.hosts[0]}")
        hosts = hosts_of_job(os.environ)
    else:
        hosts = [read_host(text) for text in arguments.hosts]
    put(hostfile_text(arguments.format, hosts).removesuffix("\n"))
    return 0
