"""Collective encode: every rank of a communicator has the same X."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.reading import RowMeasurement
from cec_mpi.encoding.sources import ArraySource, open_array, share_source
from cec_mpi.encoding.work import EncodeWork
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.processes.ending import as_cec_error, mark_shared_error
from cec_mpi.runtime.processes.packing import Failure, allgather
from cec_mpi.runtime.processes.start import call_on_master, start_and_check_ranks
from cec_mpi.runtime.wire.collective.shared_work import run_shared
from cec_mpi.store.coded.outputs import DecodeWork
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.operations.verify import ChecksumWork
from cec_mpi.store.rebuilding import RebuildWork
from cec_mpi.store.work import Runner

if TYPE_CHECKING:
    from mpi4py import MPI

WORK_TYPES = DecodeWork, EncodeWork, RowMeasurement, ChecksumWork, RebuildWork
"""Types of work that ranks share."""


def encode_on_all_ranks(
    comm: MPI.Intracomm,
    source: Any,
    options: EncodeOptions,
    encode: Callable[[Any, Runner], Manifest],
) -> Manifest:
    """Encode X on all ranks (collective)."""
    start_and_check_ranks(comm)
    with ExitStack() as stack:
        source, key = _check_agreement(comm, source, options)
        if isinstance(source, ArraySource):
            source = stack.enter_context(share_source(source, key))
        results: list[Manifest | CecError | Warning] = []

        def body(runner: Runner) -> int:
            try:
                results.append(encode(source, runner))
            except (CecError, Warning) as error:  # a program may turn warnings into exceptions
                results.append(error)
            return 0

        run_shared(comm, body, WORK_TYPES)

    def manifest_or_raise() -> Manifest:
        if isinstance(results[0], CecError | Warning):
            raise results[0]
        return results[0]

    return call_on_master(comm, manifest_or_raise, Manifest)


def _check_agreement(comm: MPI.Intracomm, source: Any, options: EncodeOptions) -> tuple[Any, str]:
    """Return X of this rank, and a key for all ranks (collective).

    Raise if the path, or the shape and dtype, are not the same on all ranks.
    """
    problem: CecError | None = None
    description, key = "", secrets.token_hex(8)
    try:
        if isinstance(source, str | os.PathLike):
            description = os.fspath(source)
        else:
            source = open_array(source, options)
            shape = " x ".join(map(str, source.shape))
            description = f"an array of {shape} {source.dtype.newbyteorder('=')}"
    except Exception as error:
        problem = as_cec_error(error)
    failure = None if problem is None else Failure.from_exception(problem)
    gathered = allgather(comm, (description, failure, key), tuple[str, Failure | None, str])
    expected, _, key = gathered[0]
    for rank, (description, failure, _) in enumerate(gathered):
        if failure is not None:
            raise mark_shared_error(comm.rank, InputError(f"{failure.text} (on rank {rank})"))
        if description != expected:
            problem = InputError(
                f"rank {rank} has {description}, but rank 0 has {expected}: expected the same X on "
                "all ranks"
            )
            raise mark_shared_error(comm.rank, problem)
    return source, key
