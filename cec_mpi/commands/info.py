"""What a store holds, for people and as one JSON object: info."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from typing import TYPE_CHECKING, Any

from cec_mpi.commands.shared import add_json, column_line
from cec_mpi.processes.launcher import detect_launcher
from cec_mpi.tables import facts_table
from cec_mpi.terminal import put
from cec_mpi.text import plural

if TYPE_CHECKING:
    from cec_mpi.store import Store
    from cec_mpi.store.format.manifest import Manifest


def add_info(commands: Any) -> None:
    """``cec-mpi info``."""
    p = commands.add_parser("info", help="say what a store holds")
    p.add_argument("store", metavar="STORE", help="a directory that encode made")
    add_json(p)
    p.set_defaults(command=_info)


def _info(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import open_store

    store = open_store(arguments.store)
    if arguments.json:
        put(json.dumps(_facts(arguments.store, store), allow_nan=False))
    else:
        put(_text(arguments.store, store.manifest))
    store.check_files()
    return 0


def _text(name: str, manifest: Manifest) -> str:
    code, measured, grid = manifest.code, manifest.code.conditioning, manifest.grid
    which = "a sample of " if not measured.complete else "all " if measured.measured > 1 else ""
    compared = "" if measured.complete else f", the worst of {measured.searched} that were compared"
    columns = f"; {column_line(manifest)}" if manifest.column_names else ""
    family = f"{'systematic ' if code.systematic else ''}{code.family}"
    worst = f"{'worst' if measured.complete else 'worst found'} {measured.worst:.1f}"
    size = plural(sum(shard.bytes for shard in manifest.shards), "byte")
    facts = [
        ("store", name),
        ("X", f"{manifest.rows} x {manifest.columns} {manifest.dtype}{columns}"),
        ("machines", f"{code.machines}, any {code.recovery} of them enough"),
        (
            "code",
            f"{family}, condition number {measured.median:.1f} ({worst}), measured on "
            f"{which}{plural(measured.measured, 'set')} of machines{compared}",
        ),
        *_wrong_answers(manifest),
        (
            "scaling",
            "none" if manifest.row_exponents is None else "rows are divided by powers of two",
        ),
        (
            "shards",
            f"{plural(manifest.rows_per_shard, 'row')} each; {size} in all, each shard in "
            f"{plural(grid.count, 'block')} of {grid.block_rows} x {grid.block_columns} with a "
            "checksum",
        ),
    ]
    for shard in manifest.shards:
        facts += [
            (
                shard.file,
                f"rows {rows.start}..{rows.stop - 1} were computed from other shards, error at "
                f"most {rows.error_bound:.1e} of the largest entry of X there",
            )
            for rows in shard.rebuilt
        ]
    # Under a launcher rank 0 may have a terminal that nobody sees.
    is_seen = sys.stdout is not None and sys.stdout.isatty() and detect_launcher() is None
    return facts_table(facts, shutil.get_terminal_size().columns if is_seen else None)


def _wrong_answers(manifest: Manifest) -> list[tuple[str, str]]:
    """How small an error in an answer is seen; nothing where that was not measured."""
    seen = _seen_errors(manifest)
    if seen is None:
        return []
    recovery = manifest.code.recovery
    some = (
        "" if seen["complete"] else f"; a sample of {plural(seen['measured'], 'set')} was measured"
    )
    if manifest.code.machines == recovery:
        text = "not seen, since all machines are needed"
    elif seen["error"] is None:
        text = f"not seen by some {recovery + 1} machines{some}"
    else:
        text = (
            f"any {seen['seen_by']} machines see an error above {seen['error']:.1e} times the sum "
            f"of the absolute terms of a row (half of all sets: {seen['median_error']:.1e})"
        )
        if seen["named_by"]:
            text += f"; any {seen['named_by']} machines tell which answer is wrong"
        text += some
    return [("wrong answers", text)]


def _seen_errors(manifest: Manifest) -> dict[str, Any] | None:
    """What machines beyond L show of a wrong answer; errors as parts of a row's terms."""
    import numpy as np

    found, recovery = manifest.sensitivity, manifest.code.recovery
    if found is None:
        return None
    eps = float(np.finfo(manifest.dtype).eps)
    is_seen = manifest.code.machines > recovery and found.detectable < math.inf
    is_named = is_seen and found.locatable < math.inf
    return {
        "seen_by": recovery + 1 if is_seen else None,
        "error": found.detectable * eps if is_seen else None,
        "median_error": found.median * eps if is_seen and found.median < math.inf else None,
        "named_by": recovery + 3 if is_named else None,
        "measured": found.measured,
        "complete": found.complete,
    }


def _facts(name: str, store: Store) -> dict[str, Any]:
    """All that is said to people, and of each shard whether it can be opened."""
    from dataclasses import asdict

    from cec_mpi.store.format.shard_files import problem_on_opening

    manifest = store.manifest
    code, grid, measured = manifest.code, manifest.grid, manifest.code.conditioning
    return {
        "store": name,
        "rows": manifest.rows,
        "columns": manifest.columns,
        "column_names": list(manifest.column_names),
        "dtype": manifest.dtype,
        "machines": code.machines,
        "recovery": code.recovery,
        "rows_per_shard": manifest.rows_per_shard,
        "family": code.family,
        "systematic": code.systematic,
        "scaling": "none" if manifest.row_exponents is None else "rows",
        "condition_number": {
            "median": _finite(measured.median),
            "worst": _finite(measured.worst),
            "measured": measured.measured,
            "complete": measured.complete,
            "searched": measured.searched,
        },
        "wrong_answers": _seen_errors(manifest),
        "bytes": sum(shard.bytes for shard in manifest.shards),
        "blocks_per_shard": grid.count,
        "block_rows": grid.block_rows,
        "block_columns": grid.block_columns,
        "shards": [
            {
                "file": shard.file,
                "bytes": shard.bytes,
                "problem": problem_on_opening(store.path / shard.file, manifest) or None,
                "rebuilt": [asdict(rows) for rows in shard.rebuilt],
            }
            for shard in manifest.shards
        ],
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
