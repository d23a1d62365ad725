"""Check launcher, ranks, cores and store: doctor."""

from __future__ import annotations

import argparse

from cec_mpi.cli.commands.parser import Parser, Processes
from cec_mpi.cli.commands.shared import add_json
from cec_mpi.runtime.options.elastic import ElasticOptions
from cec_mpi.runtime.options.option import add_option
from cec_mpi.runtime.options.shards import AssignmentOptions


def add_doctor(parser: Parser) -> None:
    """``cec-mpi doctor``."""
    parser.add_argument(
        "store",
        metavar="STORE",
        nargs="?",
        help="also check that each machine can read its shard; {host} stands for the name of the "
        "node",
    )
    add_option(
        parser,
        AssignmentOptions,
        "threads",
        text="BLAS threads of each machine, the same as for run",
    )
    add_json(parser, "print one JSON object, with values for each rank")
    add_option(parser, ElasticOptions, "start_timeout")
    parser.processes = Processes.RANKS
    parser.set_defaults(command=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from cec_mpi.cli.doctor.examine import examine
    from cec_mpi.runtime.processes.start import run_on_ranks

    options = arguments.store, arguments.json, arguments.threads
    return run_on_ranks(lambda comm: examine(comm, *options), arguments.start_timeout)
