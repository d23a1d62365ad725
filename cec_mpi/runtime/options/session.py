"""All options of a session, and their checks against a store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.availability import AvailabilityOptions, check_enough_machines
from cec_mpi.runtime.options.elastic import ElasticOptions
from cec_mpi.runtime.options.emulation import EmulationOptions
from cec_mpi.runtime.options.option import as_int, option
from cec_mpi.runtime.options.shards import (
    AssignmentOptions,
    CacheOptions,
    ReadOptions,
    as_devices,
)
from cec_mpi.store.files.paths import as_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cec_mpi.runtime.options.machines import MachineOptions
    from cec_mpi.store.format.manifest import Manifest

GROUPS = (
    ElasticOptions,
    AssignmentOptions,
    AvailabilityOptions,
    EmulationOptions,
    CacheOptions,
    ReadOptions,
)

_MAX_UNDETECTED = 1e-3  # largest error of an answer that a check may miss, relative to X w


@dataclass(frozen=True, kw_only=True)
class SessionOptions(
    ReadOptions,
    CacheOptions,
    EmulationOptions,
    AvailabilityOptions,
    AssignmentOptions,
    ElasticOptions,
):
    """Options of a session: those of all groups, the seed, and the metrics.

    Attributes
    ----------
    seed : int
        Seed of all random numbers: noise, faults, and the vector for checks of X' V.
    metrics : int, str, path or None
        Publish metrics in the format of OpenMetrics: a port of 127.0.0.1, ``HOST:PORT``, or a file,
        which is replaced at most once a second. Needs the extra ``metrics``.
    """

    title = ""

    seed: int = option(0, "--seed I", "seed of all random numbers (default: 0)", values.natural)
    metrics: int | str | os.PathLike[str] | None = option(
        None,
        "--metrics PORT|FILE",
        "publish metrics in the format of OpenMetrics: on a port of this computer (or HOST:PORT, "
        "for other computers), or in a file that is replaced at most once a second",
        values.path,
    )

    def machine_options(self) -> MachineOptions:
        """Return the options for machines."""
        from cec_mpi.runtime.options.machines import MachineOptions

        return MachineOptions(
            shards=self.shards,
            verify=self.verify,
            precision=self.precision,
            cache=str(as_path(self.cache).absolute()) if self.cache else "",
            cache_limit=self.cache_limit,
            measures_speed=self.emulate_speeds is not None and self.emulate_base is None,
            inject=self.inject,
            seed=self.seed,
            threads=self.threads or 0,
            device=as_devices(self.device),
        )

    def validate(self, manifest: Manifest) -> SessionOptions:
        """Return these options with all defaults, checked against a store.

        Parameters
        ----------
        manifest : Manifest

        Returns
        -------
        SessionOptions
            Options whose `deadline` is a `Deadline`, or None in lockstep, and whose `availability`
            is an `Availability`. Options that are already checked are returned unchanged.

        Raises
        ------
        InputError
            The message names the option, the value and the expected values.
        InfeasibleError
            Fewer machines take part, or are started on this computer, than a step needs.
        """
        if isinstance(self, _ResolvedOptions):
            return self
        try:
            if as_int("seed", self.seed) < 0:
                raise InputError(f"seed {self.seed}: expected at least 0")
            resolved: dict[str, Any] = {}
            for group in GROUPS:
                resolved |= group.resolve(self, manifest)
            check_enough_machines(resolved["machines"], manifest)
            if self.check:
                check_sensitivity(self.precision, manifest)
            return _ResolvedOptions(**{**vars(self), **resolved})
        except (InputError, InfeasibleError):
            raise
        except (TypeError, ValueError) as error:
            raise InputError(f"an option has the wrong type: {error}") from None


class _ResolvedOptions(SessionOptions):
    """Options that were checked against a store."""


def check_sensitivity(precision: str, manifest: Manifest) -> None:
    """Raise if checks for wrong answers would miss large errors with this code.

    Parameters
    ----------
    precision : {"double", "shard"}
        Whether products are computed in float64 or in the dtype of the shards.
    manifest : Manifest

    Raises
    ------
    InputError
        The message names the size of errors that may be missed, and remedies.
    """
    from cec_mpi.core.accuracy.rounding import encoding_error_bound

    code, dtype = manifest.code, manifest.dtype
    recovery = code.recovery
    arithmetic = dtype if precision == "shard" else "float64"
    max_error = _undetected_error(manifest, manifest.shard_errors, arithmetic)
    if max_error <= _MAX_UNDETECTED:
        return
    fresh_errors, float64_errors = (
        encoding_error_bound(code.generator, shard_dtype) for shard_dtype in (dtype, "float64")
    )
    remedies = ["encode with a smaller L, or another code"]
    if _undetected_error(manifest, fresh_errors, arithmetic) <= _MAX_UNDETECTED:
        remedies = ["encode X again, because the errors of repaired shards are too large"]
    elif (
        dtype != "float64"
        and _undetected_error(manifest, float64_errors, "float64") <= _MAX_UNDETECTED
    ):
        remedies = ["encode with dtype float64, a smaller L, or another code"]
    if (
        precision == "shard"
        and _undetected_error(manifest, manifest.shard_errors, "float64") <= _MAX_UNDETECTED
    ):
        remedies.insert(0, "run with precision double")
    missed = (
        f"errors of up to {max_error:.1g} of X w" if max_error < 1 else "errors as large as X w"
    )
    raise InputError(
        f"check: with this code ({code.family}, N = {code.machines}, L = {recovery}) in {dtype}, a "
        f"check with {recovery + 1} machines can miss {missed}, expected at most "
        f"{_MAX_UNDETECTED:g}: {'; or '.join(remedies)}"
    )


def _undetected_error(
    manifest: Manifest, shard_errors: NDArray[np.float64], arithmetic: str
) -> float:
    """Return the largest error of an answer that a check may miss, relative to X w.

    This assumes terms of random sign and similar size, whose sum is about ``S / sqrt(r)``, where S
    is the sum of their absolute values.
    """
    from cec_mpi.core.checks.parity import make_checker
    from cec_mpi.core.checks.sensitivity import measure_sensitivity

    code, columns = manifest.code, manifest.columns
    checker = make_checker(code.generator, arithmetic, columns, shard_errors)
    sensitivity = measure_sensitivity(checker, code.machines, code.conditioning.worst_machines)
    return sensitivity.error * float(columns**0.5)
