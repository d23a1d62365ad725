"""Codes that do not show wrong answers are refused, where these are looked for."""

from __future__ import annotations

from cec_mpi.core.checks.sensitivity import measure_sensitivity
from cec_mpi.errors import InputError
from cec_mpi.store.format.manifest import Manifest

_UNSEEN = 1e-3  # error of an answer, relative to X w, that every check has to show


def check_sensitivity(check: str, precision: str, manifest: Manifest) -> None:
    """Refuse to look for wrong answers with a code that does not show them.

    Parameters
    ----------
    check : {"none", "parity", "sample"}
    precision : {"double", "shard"}
        What products are computed in.
    manifest : Manifest

    Raises
    ------
    InputError
        Says how large an error may be missed, and what would help.
    """
    if check == "none":
        return
    code, dtype = manifest.code, manifest.dtype
    total, recovery = code.machines, code.recovery
    if total == recovery:
        raise InputError(
            f"check {check}: expected more than {recovery} machines (N > L), whose answers can be "
            "compared: encode with more machines, or a smaller L"
        )
    size = _unseen(manifest, dtype, precision)
    if size <= _UNSEEN:
        return
    helps = []
    if precision == "shard" and _unseen(manifest, dtype, "double") <= _UNSEEN:
        helps.append("run with precision double")
    helps.append("encode with a smaller L, or another code")
    if dtype != "float64" and _unseen(manifest, "float64", "double") <= _UNSEEN:
        helps[-1] = "encode with dtype float64, a smaller L, or another code"
    missed = f"errors of up to {size:.1g} of X w" if size < 1 else "errors as large as X w"
    raise InputError(
        f"check {check}: with this code ({code.family}, N = {total}, L = {recovery}) in {dtype} "
        f"some {recovery + 1} machines do not show {missed}, expected at most {_UNSEEN:g}: "
        f"{'; or '.join(helps)}"
    )


def _unseen(manifest: Manifest, dtype: str, precision: str) -> float:
    """The largest error that may be missed, relative to X w."""
    arithmetic = dtype if precision == "shard" else "float64"
    found = manifest.sensitivity
    if found is None or dtype != manifest.dtype or arithmetic != "float64":
        generator, columns = manifest.code.generator, manifest.columns
        found = measure_sensitivity(generator, dtype, columns, arithmetic=arithmetic)
    return found.unseen(dtype, manifest.columns)
