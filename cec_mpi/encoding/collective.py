"""Encode by all ranks of a communicator, each of which has its own X."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.reading import RowMeasurement
from cec_mpi.encoding.sources import InMemorySource, open_array, shared
from cec_mpi.encoding.work import EncodeWork
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.processes.ending import as_cec_error, mark_shared_error
from cec_mpi.runtime.processes.packing import Failure, allgather
from cec_mpi.runtime.processes.start import call_on_master, check_start
from cec_mpi.runtime.wire.collective.shared_work import run_shared
from cec_mpi.store.coded.outputs import Decoding
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.operations.verify import ChecksumWork
from cec_mpi.store.rebuilding import RebuildWork
from cec_mpi.store.work import Runner

if TYPE_CHECKING:
    from mpi4py import MPI

WORKS = Decoding, EncodeWork, RowMeasurement, ChecksumWork, RebuildWork
"""The works that ranks share."""


def encode_on_all_ranks(
    comm: MPI.Intracomm,
    source: Any,
    options: EncodeOptions,
    encode: Callable[[Any, Runner], Manifest],
) -> Manifest:
    """Encode the X of all ranks with a runner of all ranks (collective)."""
    check_start(comm)
    with ExitStack() as stack:
        source, key = _check_agreement(comm, source, options)
        if isinstance(source, InMemorySource):
            source = stack.enter_context(shared(source, key))
        done: list[Manifest | CecError | Warning] = []

        def body(runner: Runner) -> int:
            try:
                done.append(encode(source, runner))
            except (CecError, Warning) as error:  # a program may make warnings exceptions
                done.append(error)
            return 0

        run_shared(comm, body, WORKS)

    def outcome() -> Manifest:
        if isinstance(done[0], CecError | Warning):
            raise done[0]
        return done[0]

    return call_on_master(comm, outcome, Manifest)


def _check_agreement(comm: MPI.Intracomm, source: Any, options: EncodeOptions) -> tuple[Any, str]:
    """Return X of this rank with a key, if it matches X of rank 0 (collective)."""
    problem: CecError | None = None
    found, key = "", secrets.token_hex(8)
    try:
        if isinstance(source, str | os.PathLike):
            found = os.fspath(source)
        else:
            source = open_array(source, options)
            shape = " x ".join(map(str, source.shape))
            found = f"an array of {shape} {source.dtype.newbyteorder('=')}"
    except Exception as caught:
        problem = as_cec_error(caught)
    failure = None if problem is None else Failure.from_exception(problem)
    descriptions = allgather(comm, (found, failure, key), tuple[str, Failure | None, str])
    expected, _, key = descriptions[0]
    for rank, (description, error, _) in enumerate(descriptions):
        if error is not None:
            raise mark_shared_error(comm.rank, InputError(f"{error.text} (on rank {rank})"))
        if description != expected:
            problem = InputError(
                f"rank {rank} has {description}, but rank 0 has {expected}: expected the same X on "
                "all ranks"
            )
            raise mark_shared_error(comm.rank, problem)
    return source, key
