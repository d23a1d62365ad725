"""Facts about a coded store that ``info``, ``encode`` and ``add-machine`` print."""

from __future__ import annotations

import math
from typing import Any

from msgspec import to_builtins

from cec_mpi.core.accuracy.rounding import estimate_answer_error
from cec_mpi.core.checks.parity import make_checker
from cec_mpi.core.checks.sensitivity import measure_sensitivity
from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.facts import Facts
from cec_mpi.store.format.manifest import Manifest, MissingValues
from cec_mpi.text import plural, printable

_MAX_LISTED = 8
_MAX_NAME_LENGTH = 24  # characters of the name of a column


class CodedFacts(Facts):
    """Facts about a coded store."""

    manifest: CodedManifest

    def summary(self) -> str:
        """See `Facts.summary`; adds the code and the error of a product."""
        manifest = self.manifest
        error = estimate_answer_error(manifest.dtype, "float64") * manifest.code.conditioning.median
        return (
            f"{manifest.rows} x {manifest.columns} {manifest.dtype} on {self.describe_machines()}; "
            f"{plural(manifest.rows_per_shard, 'row')} per shard; {self._describe_code()}; "
            f"relative errors of about {error:.0e}"
        )

    def _describe_code(self) -> str:
        """Return the code of a store with its condition number."""
        manifest = self.manifest
        code, conditioning = manifest.code, manifest.code.conditioning
        family = f"{'systematic ' if code.systematic else ''}{printable(code.family)}"
        worst = f"{'worst' if conditioning.complete else 'worst found'} {conditioning.worst:.1f}"
        return f"{family} code, condition number {conditioning.median:.1f} ({worst})"

    def table(self) -> list[tuple[str, str]]:
        """See `Facts.table`."""
        manifest = self.manifest
        conditioning, grid = manifest.code.conditioning, manifest.grid
        sets = plural(conditioning.measured, "set")
        if not conditioning.complete:
            sets = f"a sample of {sets}"
        elif conditioning.measured > 1:
            sets = f"all {sets}"
        columns = f"; {describe_columns(manifest)}" if manifest.column_names else ""
        size = plural(sum(shard.bytes for shard in manifest.shards), "byte")
        facts = [
            ("X", f"{manifest.rows} x {manifest.columns} {manifest.dtype}{columns}"),
            *([("missing values", describe_missing(manifest.missing))] if manifest.missing else []),
            ("machines", self.describe_machines()),
            ("code", f"{self._describe_code()}, measured on {sets} of machines"),
            self._detection_fact(),
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
                    f"most {rows.error_bound:.1e} times the largest encoded entry of X",
                )
                for rows in shard.rebuilt
            ]
        return facts

    def _detection_fact(self) -> tuple[str, str]:
        """Return a fact about the errors that `--check` detects."""
        manifest = self.manifest
        detectable, recovery = self._detectable_errors(), manifest.recovery
        if manifest.machines == recovery:
            text = "not detected, because all machines are needed"
        elif detectable["error"] is None:
            text = f"not detected by some sets of {recovery + 1} machines"
        else:
            text = (
                f"any {recovery + 1} machines detect errors above {detectable['error']:.1e} times "
                "the sum of the absolute values of a row's terms"
            )
            if count := detectable["answers_to_identify"]:
                text += f"; any {count} machines identify the wrong answer"
        if not detectable["complete"]:
            text += f"; a sample of {plural(detectable['measured'], 'set')} was measured"
        return "wrong answers", text

    def _detectable_errors(self) -> dict[str, Any]:
        """Return the field ``wrong_answers`` of ``info --json``."""
        manifest = self.manifest
        code = manifest.code
        checker = make_checker(code.generator, "float64", manifest.columns, manifest.shard_errors)
        sensitivity = measure_sensitivity(checker, code.machines, code.conditioning.worst_machines)
        is_detectable = sensitivity.error < math.inf
        is_identifiable = is_detectable and code.machines > code.recovery + 2
        return {
            "answers_to_detect": code.recovery + 1 if is_detectable else None,
            "error": sensitivity.error if is_detectable else None,
            "answers_to_identify": code.recovery + 3 if is_identifiable else None,
            "measured": sensitivity.measured,
            "complete": sensitivity.complete,
        }

    def details(self) -> dict[str, Any]:
        """See `Facts.details`."""
        manifest = self.manifest
        code, grid, conditioning = manifest.code, manifest.grid, manifest.code.conditioning
        return {
            "column_names": list(manifest.column_names),
            "missing": to_builtins(manifest.missing),
            "recovery": manifest.recovery,
            "rows_per_shard": manifest.rows_per_shard,
            "family": code.family,
            "systematic": code.systematic,
            "scaling": "none" if manifest.row_exponents is None else "rows",
            "condition_number": {
                "median": _finite_or_none(conditioning.median),
                "worst": _finite_or_none(conditioning.worst),
                "measured": conditioning.measured,
                "complete": conditioning.complete,
            },
            "wrong_answers": self._detectable_errors(),
            "blocks_per_shard": grid.count,
            "block_rows": grid.block_rows,
            "block_columns": grid.block_columns,
        }


def _finite_or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None


def describe_missing(missing: MissingValues) -> str:
    """Return a description of the missing values of a table and their treatment."""
    if not missing.rows:
        return f"none (--missing {missing.treatment})"
    dropped = f"{plural(missing.dropped, 'row')} left out"
    treatment = dropped
    if missing.treatment == "mean":
        treatment = "replaced by the mean of the column"
        if missing.dropped:
            treatment += f", {dropped} because a target was missing"
    location = f"in {plural(missing.rows, 'row')} and {plural(missing.columns, 'column')}"
    return f"{location}: {treatment} (--missing {missing.treatment})"


def describe_columns(manifest: Manifest) -> str:
    """Return the number of columns of X, and their names, shortened if there are many."""
    names = [
        (name if len(name) <= _MAX_NAME_LENGTH else f"{name[: _MAX_NAME_LENGTH - 3]}...")
        or "(no name)"
        for name in manifest.column_names
    ]
    if len(names) > _MAX_LISTED + 1:
        names = [*names[: _MAX_LISTED - 1], "...", names[-1]]
    text = printable(", ".join(names).replace("\n", " "))
    return plural(manifest.columns, "column") + (f": {text}" if text else " without names")
