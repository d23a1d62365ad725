"""Encode a matrix into a store: encode."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cec_mpi.cli.commands.parser import Parser
from cec_mpi.cli.commands.shared import allow_shared_work, share_work
from cec_mpi.encoding.options import FORMATS, GROUPS, EncodeOptions
from cec_mpi.runtime.options.option import add_options, from_flags
from cec_mpi.store.files.paths import as_path
from cec_mpi.text import printable
from cec_mpi.text.terminal import print_note

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import Manifest
    from cec_mpi.store.work import Runner


def add_encode(parser: Parser) -> None:
    """``cec-mpi encode``."""
    parser.description = (
        "Encode a matrix into a store. With --recovery L, write coded shards; without it (sparse "
        "matrices only), write copies of the rows. Under mpirun all ranks share the encoding of "
        "coded shards; copies are written by one rank."
    )
    parser.add_argument("source", metavar="X", help=FORMATS)
    parser.add_argument("store", metavar="STORE", help="directory to create")
    for group in GROUPS:
        add_options(parser, group)
    allow_shared_work(parser)
    parser.set_defaults(command=_encode)


def _encode(arguments: argparse.Namespace) -> int:
    from cec_mpi.encoding.encode import encode_matrix

    options = from_flags(EncodeOptions, arguments).validate()

    def body(runner: Runner) -> int:
        from cec_mpi.store.coded.facts import describe_columns, describe_missing
        from cec_mpi.store.kinds import make_facts

        manifest = encode_matrix(arguments.source, as_path(arguments.store), options, runner)
        print_note(f"{arguments.store}: {make_facts(manifest).summary()}")
        if manifest.column_names or _is_table(arguments):
            print_note(describe_columns(manifest) + _header_note(arguments, manifest))
        if manifest.missing is not None:
            print_note(f"missing values: {describe_missing(manifest.missing)}")
        for column, file in options.target:
            print_note(printable(f"{file}: column {column}, {manifest.rows} numbers"))
        return 0

    return share_work("encoding", body, arguments)


def _header_note(arguments: argparse.Namespace, manifest: Manifest) -> str:
    """Return how the first row of a table was interpreted, if that is uncertain."""
    from cec_mpi.encoding.sources.table import is_number

    if arguments.header is not None or not _is_table(arguments):
        return ""
    if not manifest.column_names:
        return "; the first row was read as data (use --header yes if it holds names)"
    if all(map(is_number, manifest.column_names)):
        return "; the first row was read as names (use --header no if it is data)"
    return ""


def _is_table(arguments: argparse.Namespace) -> bool:
    suffixes = (".csv", ".tsv")
    return bool(arguments.delimiter) or arguments.source.lower().endswith(suffixes)
