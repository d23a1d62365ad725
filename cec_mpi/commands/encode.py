"""Making stores: encode."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cec_mpi.commands.parser import Processes
from cec_mpi.commands.shared import add_memory, column_line, described, with_runner
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.errors import InputError
from cec_mpi.options import values
from cec_mpi.options.option import add_flag, add_option
from cec_mpi.options.session import SessionOptions
from cec_mpi.terminal import say
from cec_mpi.text import printable

if TYPE_CHECKING:
    from cec_mpi.store.work import Runner

_KEYWORDS = [  # of `cec_mpi.encode` that are flags of the same names
    *("code", "systematic", "seed", "dtype", "scaling", "shape", "input_dtype"),
    *("delimiter", "columns", "drop", "memory", "resume"),
]


def add_encode(commands: Any) -> None:
    """``cec-mpi encode``."""
    p = commands.add_parser(
        "encode",
        help="encode a matrix on disk into a store of coded shards",
        description="Encode a matrix into a store; under mpirun all ranks share the work.",
    )
    p.add_argument(
        "source",
        metavar="X",
        help=".npy, a directory of .npy parts, file.h5::/dataset, Zarr, .csv, .tsv, .mtx, or raw "
        "binary with --shape",
    )
    p.add_argument("store", metavar="STORE", help="the directory to make")
    add_flag(p, "--machines N", "shards to make", values.positive, required=True)
    add_flag(p, "--recovery L", "any L of them give X back", values.positive, required=True)
    add_flag(
        p,
        "--code",
        "code family (default: auto, the best conditioned)",
        default="auto",
        choices=["auto", *FAMILIES],
    )
    add_flag(p, "--systematic", "the first L shards are rows of X", default=False)
    add_option(p, SessionOptions, "seed", text="of the random families")
    add_flag(p, "--dtype", "of the shards", choices=["float32", "float64"])
    add_flag(
        p,
        "--scaling",
        "divide rows by powers of two before they are encoded, or not (default: rows, with "
        "--systematic none)",
        choices=["rows", "none"],
    )
    add_flag(p, "--shape Q,R", "X is raw binary, C-ordered", values.shape)
    add_flag(p, "--input-dtype DTYPE", "of raw binary, as <f4 (default: that of --dtype)")
    _add_table(p)
    add_flag(p, "--resume", "go on where an encode was interrupted", default=False)
    add_memory(p)
    p.processes = Processes.SHARED
    p.set_defaults(command=_encode)


def _add_table(p: argparse.ArgumentParser) -> None:
    table = p.add_argument_group("text tables, .csv and .tsv")
    add_flag(
        table,
        "--header",
        "whether the first row has the names of the columns (default: if none of its cells "
        "is a number)",
        choices=["yes", "no"],
    )
    add_flag(
        table,
        "--delimiter CHAR",
        "between columns: one character, or tab, semicolon, space (any white space); by "
        "default a comma, in .tsv a tab",
    )
    add_flag(
        table,
        "--columns LIST",
        "what is X, by names or by numbers from 1, as age,size,5-9 (default: all columns)",
        values.columns,
    )
    add_flag(table, "--drop LIST", "columns that are left out", values.columns)
    add_flag(
        table,
        "--target COLUMN:y.npy",
        "a column that is no part of X: it goes to this file, as y of ridge and logistic",
        values.target,
        default=(),
    )


def _encode(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import encode

    targets = dict(arguments.target)
    if len(targets) < len(arguments.target):
        raise InputError("--target names one column twice: expected a file for each column")

    def body(runner: Runner) -> int:
        manifest = encode(
            arguments.source,
            arguments.store,
            arguments.machines,
            arguments.recovery,
            header={"yes": True, "no": False, None: None}[arguments.header],
            target=targets,
            runner=runner,
            **{name: getattr(arguments, name) for name in _KEYWORDS},
        )
        say(f"{arguments.store}: {described(manifest)}")
        if manifest.column_names or _is_table(arguments):
            say(column_line(manifest))
        for column, file in targets.items():
            say(printable(f"{file}: column {column}, {manifest.rows} numbers"))
        return 0

    return with_runner("encoding", body, arguments)


def _is_table(arguments: argparse.Namespace) -> bool:
    suffixes = (".csv", ".tsv")
    return bool(arguments.delimiter) or arguments.source.lower().endswith(suffixes)
