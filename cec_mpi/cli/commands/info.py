"""Describe a store, as a table or as one JSON object: info."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from typing import TYPE_CHECKING, Any

from cec_mpi.cli.commands.shared import (
    add_json,
    balance_of,
    code_of,
    column_line,
    losses_of,
    machines_of,
    missing_line,
)
from cec_mpi.runtime.processes.launcher import detect_launcher
from cec_mpi.terminal import facts_table, put
from cec_mpi.text import plural, size_words

if TYPE_CHECKING:
    from cec_mpi.core.replicas.holders import Spread
    from cec_mpi.store import Store
    from cec_mpi.store.format.manifest import CodedManifest, CopiesManifest, Manifest
    from cec_mpi.store.replicas.layout import Layout


def add_info(commands: Any) -> None:
    """``cec-mpi info``."""
    p = commands.add_parser("info", help="describe a store")
    p.add_argument("store", metavar="STORE", help="directory made by encode")
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
    from cec_mpi.store.format.manifest import CodedManifest, CopiesManifest

    if isinstance(manifest, CopiesManifest):
        facts = _facts_of_copies(name, manifest)
    else:
        assert isinstance(manifest, CodedManifest)
        facts = _facts_of_code(name, manifest)
    # Under a launcher the terminal of rank 0 may be invisible.
    is_seen = sys.stdout is not None and sys.stdout.isatty() and detect_launcher() is None
    return facts_table(facts, shutil.get_terminal_size().columns if is_seen else None)


def _facts_of_copies(name: str, manifest: CopiesManifest) -> list[tuple[str, str]]:
    from cec_mpi.core.replicas.holders import fatal_sets
    from cec_mpi.store.replicas.layout import BLOCK_BYTES

    layout = manifest.replicas
    entries, size = int(layout.entries[-1]), sum(shard.bytes for shard in manifest.shards)
    share = entries / (manifest.rows * manifest.columns)
    spread = _spread(layout)
    fatal = fatal_sets(layout.holders, range(1, layout.machines + 1))
    return [
        ("store", name),
        (
            "X",
            f"{manifest.rows} x {manifest.columns} {manifest.dtype}, "
            f"{plural(entries, 'nonzero')} ({share:.2%})",
        ),
        ("machines", machines_of(manifest)),
        (
            "copies",
            f"{code_of(manifest)}; {plural(layout.parts, 'part')} with "
            f"{plural(spread.sets, 'different set')} of machines",
        ),
        *losses_of(layout.copies, spread.lost, fatal),
        balance_of(spread.slower, spread.slowest, spread.away),
        (
            "shards",
            f"{size_words(size)} in all, in blocks of {BLOCK_BYTES >> 20} MiB with a checksum",
        ),
    ]


def _spread(layout: Layout) -> Spread:
    """Return what the choice of holders comes to, for speeds in proportion to what they hold."""
    import numpy as np

    from cec_mpi.core.replicas.holders import spread_of

    costs = layout.sizes.sum(axis=1).astype(np.float64)
    held = [float(costs[parts].sum()) for parts in layout.held]
    return spread_of(layout.holders, [max(each, 1.0) for each in held], costs.tolist())


def _facts_of_code(name: str, manifest: CodedManifest) -> list[tuple[str, str]]:
    measured, grid = manifest.code.conditioning, manifest.grid
    which = "a sample of " if not measured.complete else "all " if measured.measured > 1 else ""
    columns = f"; {column_line(manifest)}" if manifest.column_names else ""
    size = plural(sum(shard.bytes for shard in manifest.shards), "byte")
    facts = [
        ("store", name),
        ("X", f"{manifest.rows} x {manifest.columns} {manifest.dtype}{columns}"),
        *([("missing values", missing_line(manifest.missing))] if manifest.missing else []),
        ("machines", machines_of(manifest)),
        (
            "code",
            f"{code_of(manifest)}, measured on {which}{plural(measured.measured, 'set')} of "
            "machines",
        ),
        _wrong_answers(manifest),
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
                f"most {rows.error_bound:.1e} times the largest of the entries of X that are "
                "coded together",
            )
            for rows in shard.rebuilt
        ]
    return facts


def _wrong_answers(manifest: Manifest) -> tuple[str, str]:
    """Return the size of errors that `--check` detects."""
    seen, recovery = _seen_errors(manifest), manifest.code.recovery
    if manifest.code.machines == recovery:
        text = "not detected, because all machines are needed"
    elif seen["error"] is None:
        text = f"not detected by some sets of {recovery + 1} machines"
    else:
        text = (
            f"any {recovery + 1} machines detect errors above {seen['error']:.1e} times the "
            "sum of the absolute terms of a row"
        )
        if seen["named_by"]:
            text += f"; any {seen['named_by']} machines identify the wrong answer"
    if not seen["complete"]:
        text += f"; a sample of {plural(seen['measured'], 'set')} was measured"
    return "wrong answers", text


def _seen_errors(manifest: Manifest) -> dict[str, Any]:
    """Return which errors are detected, relative to the sum of the absolute terms of a row."""
    from cec_mpi.core.checks.parity import answer_checker
    from cec_mpi.core.checks.sensitivity import measure_sensitivity

    code = manifest.code
    checker = answer_checker(code.generator, "float64", manifest.columns, manifest.shard_errors)
    found = measure_sensitivity(checker, code.machines, code.conditioning.worst_machines)
    is_seen = found.error < math.inf
    return {
        "seen_by": code.recovery + 1 if is_seen else None,
        "error": found.error if is_seen else None,
        "named_by": code.recovery + 3 if is_seen and code.machines > code.recovery + 2 else None,
        "measured": found.measured,
        "complete": found.complete,
    }


def _facts(name: str, store: Store) -> dict[str, Any]:
    """Return everything as plain values, and for each shard whether it can be opened."""
    from msgspec import to_builtins

    from cec_mpi.store.format.manifest import CodedManifest, CopiesManifest
    from cec_mpi.store.format.shard_files import problem_on_opening

    manifest = store.manifest
    if isinstance(manifest, CopiesManifest):
        from cec_mpi.core.replicas.holders import fatal_sets

        layout = manifest.replicas
        spread = _spread(layout)
        return {
            "store": name,
            "rows": manifest.rows,
            "columns": manifest.columns,
            "dtype": manifest.dtype,
            "nonzeros": int(layout.entries[-1]),
            "machines": layout.machines,
            "copies": layout.copies,
            "parts": layout.parts,
            "sets_of_holders": spread.sets,
            "fatal": fatal_sets(layout.holders, range(1, layout.machines + 1)),
            "lost": spread.lost,
            "over_optimum": {"mean": spread.slower, "worst": spread.slowest, "away": spread.away},
            "bytes": sum(shard.bytes for shard in manifest.shards),
            "shards": [
                {
                    "file": shard.file,
                    "bytes": shard.bytes,
                    "problem": problem_on_opening(store.path / shard.file, manifest) or None,
                    "parts": len(layout.held[n]),
                }
                for n, shard in enumerate(manifest.shards)
            ],
        }
    assert isinstance(manifest, CodedManifest)
    code, grid, measured = manifest.code, manifest.grid, manifest.code.conditioning
    return {
        "store": name,
        "rows": manifest.rows,
        "columns": manifest.columns,
        "column_names": list(manifest.column_names),
        "missing": to_builtins(manifest.missing),
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
                "rebuilt": to_builtins(shard.rebuilt),
            }
            for shard in manifest.shards
        ],
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
