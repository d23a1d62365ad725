"""Errors of one rank are raised on all ranks."""

from __future__ import annotations

import re
import shutil
from contextlib import ExitStack

import numpy as np
import pytest

from cec_mpi import open_operator, open_store
from cec_mpi.errors import (
    CecError,
    DamagedStoreError,
    InfeasibleError,
    InputError,
    MachineError,
)
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.resources import ProcessInfo
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.serving import serve
from cec_mpi.runtime.session.session import Session
from cec_mpi.runtime.wire.answers import check_message_sizes
from cec_mpi.runtime.wire.collective.machine_endpoint import CollectiveMachineEndpoint
from cec_mpi.runtime.wire.collective.master_endpoint import CollectiveHub

pytestmark = pytest.mark.mpi(min_size=4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"speeds": (1.0, 2.0)}, InputError, "2 speeds"),
        ({"machines": (1, 2)}, InputError, "4 ranks were started"),
        ({"machines": (1,)}, InfeasibleError, "needs 2"),
        ({"store": "absent"}, CecError, "does not exist, expected a store"),
        ({"stragglers": 1}, InputError, "comm starts a lockstep run"),
    ],
)
def test_invalid_options_raise_on_all_ranks(comm, store, options, error, message):
    with (
        pytest.raises(error, match=message),
        open_operator(**{"store": store, **options}, comm=comm),
    ):
        pass


def test_damaged_shards_raise_one_error_on_all_ranks(comm, store, shared_directory):
    damaged = shared_directory / "damaged"
    if comm.rank == 0:
        shutil.copytree(store, damaged)
        with (damaged / "shard-0001.npy").open("r+b") as file:
            file.seek(4000)
            file.write(b"altered")
    comm.Barrier()
    emulation = {"emulate_speeds": (1.0, 2.0, 3.0)}  # shards are read to measure speeds
    for machines in (comm, None) if comm.rank == 0 else (comm,):
        message = r"machine 1 .*cannot start: .*shard-0001.npy"
        with pytest.raises(DamagedStoreError, match=message):
            open_operator(damaged, machines, **emulation).__enter__()
    comm.Barrier()
    if comm.rank == 0:
        for shard in damaged.glob("shard-*"):
            shard.unlink()
    comm.Barrier()
    with pytest.raises(DamagedStoreError, match=r"machine 1 .*missing.*2 more"):
        open_operator(damaged, comm).__enter__()


def test_a_damaged_block_stops_the_step_that_reads_it(comm, make_store, X):
    store = make_store(X, block_bytes=1 << 12).path
    if comm.rank == 0:
        shard = np.load(store / "shard-0002.npy", mmap_mode="r+")
        shard[400, 5] += 1
        shard.flush()
    comm.Barrier()

    def multiply(**options):
        with open_operator(store, comm, **options) as operator:
            if operator is not None:
                operator.matvec(np.ones(40))

    multiply(verify="never")
    with pytest.raises(DamagedStoreError) as error:
        multiply()
    if comm.rank == 0:
        assert "step 0 failed on machine 2: " in str(error.value)
        assert re.search(r"shard-0002.npy: rows \d+\.\.\d+ do not match", str(error.value))


def test_an_exception_of_the_program_is_raised_on_all_ranks(comm, store):
    with pytest.raises(KeyError, match="mine"), open_operator(store, comm) as X:
        raise KeyError("mine", X.matvec(np.ones(40)).sum())


def test_a_step_with_too_few_machines_raises_or_waits(comm, store, X):
    for wait in (False, True):
        ticks = ListedAvailability([(1,), (1,), (2, 3)])
        with open_operator(store, comm, availability=ticks, wait=wait) as operator:
            if operator is None:
                continue
            if wait:
                np.testing.assert_allclose(operator.matvec(np.ones(40)), X.sum(axis=1), atol=1e-10)
                continue
            with pytest.raises(InfeasibleError, match="1 machine is available at tick 0"):
                operator.matvec(np.ones(40))


def fail_in_step_1(machine, product, values, step, compute=Machine.compute):
    if step == 1:
        raise OSError("the disk is full")
    return compute(machine, product, values, step)


def test_a_failed_machine_is_named_with_the_reason(comm, store, monkeypatch):
    if comm.rank:
        if comm.rank == 2:
            monkeypatch.setattr(Machine, "compute", fail_in_step_1)
        serve(CollectiveMachineEndpoint(comm))
        return
    hub = CollectiveHub(comm)
    with ExitStack() as stack:
        session = Session(hub, [ProcessInfo("here", 1, 1, 1)] * 4, stack, library="MPI")
        master = session.open(store, SessionOptions(), Recorder())
        master.matvec(np.ones(40))
        message = "step 1 failed on machine 2: OSError: the disk is full"
        with pytest.raises(MachineError, match=message):
            master.matvec(np.ones(40))
    hub.stop(None)


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_machine_with_a_nonfinite_answer_is_named(comm, store, X, adjoint):
    with open_operator(store, comm, inject="nan:2@0") as operator:
        if operator is not None:
            operator.available = {1, 2}
            product = operator.rmatvec if adjoint else operator.matvec
            v = np.ones(X.shape[0 if adjoint else 1])
            message = (
                "machine 2 to step 0 is not finite" if adjoint else "machine 2 answered .* step 0"
            )
            with pytest.raises(MachineError, match=f"{message}, .*--elastic"):
                product(v)
            np.testing.assert_allclose(product(v), (X.T if adjoint else X) @ v, atol=1e-10)


def test_vectors_too_long_for_one_message_are_rejected(store):
    manifest = open_store(store).manifest
    check_message_sizes(manifest, 10**6)
    with pytest.raises(InputError, match="at most"):
        check_message_sizes(manifest, 2**31 // 40 + 1)
