"""Describe a store, as a table or as one JSON object: info."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

from cec_mpi.cli.commands.parser import Parser
from cec_mpi.cli.commands.shared import add_json
from cec_mpi.runtime.processes.launcher import detect_launcher
from cec_mpi.text.terminal import facts_table, print_result

if TYPE_CHECKING:
    from cec_mpi.store import Store
    from cec_mpi.store.format.manifest import Manifest


def add_info(parser: Parser) -> None:
    """``cec-mpi info``."""
    parser.add_argument("store", metavar="STORE", help="directory made by encode")
    add_json(parser)
    parser.set_defaults(command=_info)


def _info(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import open_store

    store = open_store(arguments.store)
    if arguments.json:
        print_result(json.dumps(_as_dict(arguments.store, store), allow_nan=False))
    else:
        print_result(_format_facts(arguments.store, store.manifest))
    store.check_files()
    return 0


def _format_facts(name: str, manifest: Manifest) -> str:
    from cec_mpi.store.kinds import make_facts

    facts = [("store", name), *make_facts(manifest).table()]
    # Under a launcher, rank 0's terminal may not be the one the user sees, so its width is ignored.
    is_terminal = sys.stdout is not None and sys.stdout.isatty() and detect_launcher() is None
    return facts_table(facts, shutil.get_terminal_size().columns if is_terminal else None)


def _as_dict(name: str, store: Store) -> dict[str, Any]:
    """Return the facts of a store and the problems of its shards, as plain values."""
    from cec_mpi.store.format.shard_files import find_file_problem
    from cec_mpi.store.kinds import make_facts

    manifest, facts = store.manifest, make_facts(store.manifest)
    return {
        "store": name,
        "rows": manifest.rows,
        "columns": manifest.columns,
        "dtype": manifest.dtype,
        "machines": manifest.machines,
        **facts.details(),
        "bytes": sum(shard.bytes for shard in manifest.shards),
        "shards": [
            {
                "file": shard.file,
                "bytes": shard.bytes,
                "problem": find_file_problem(store.path / shard.file, manifest) or None,
                **facts.shard_details(n),
            }
            for n, shard in enumerate(manifest.shards, start=1)
        ],
    }
