"""Errors of one rank are raised on all ranks."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from cec_mpi import open_operator, open_store
from cec_mpi.core.plan.planner import Planner
from cec_mpi.errors import (
    CecError,
    DamagedStoreError,
    InfeasibleError,
    InputError,
    MachineError,
)
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.resources import ProcessInfo
from cec_mpi.runtime.processes.start import call_on_master
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.serving import serve
from cec_mpi.runtime.session.session import Session
from cec_mpi.runtime.wire.answers import check_message_sizes
from cec_mpi.runtime.wire.collective.machine_endpoint import CollectiveMachineEndpoint
from cec_mpi.runtime.wire.collective.master_endpoint import CollectiveHub, CollectiveMasterEndpoint
from cec_mpi.runtime.wire.orders import Opening

pytestmark = pytest.mark.mpi(min_size=4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"speeds": (1.0, 2.0)}, InputError, "2 speeds"),
        ({"machines": (1, 2)}, InputError, "4 ranks were started"),
        ({"machines": (1,)}, InfeasibleError, "needs 2"),
        ({"store": "absent"}, CecError, "does not exist, expected a store"),
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


class Broken(Machine):
    """Fails in step 1."""

    def compute(self, product, values, step):
        if step == 1:
            raise OSError("the disk is full")
        return super().compute(product, values, step)


class Short(Machine):
    """Sends an incomplete answer."""

    def compute(self, product, values, step):
        seconds = super().compute(product, values, step)
        self.values[-1] = np.nan
        return seconds


@contextmanager
def open_with(comm, store, kind):
    """Open a store with another class for machine 2; the master on rank 0, None elsewhere."""
    if comm.rank:
        yield serve(CollectiveMachineEndpoint(comm), kind if comm.rank == 2 else Machine)
        return
    hub = CollectiveHub(comm)
    with ExitStack() as stack:
        session = Session(hub, [ProcessInfo("here", 1, 1, 1)] * 4, stack, library="MPI")
        yield session.open(store, SessionOptions(), Recorder())
    hub.stop(None)


@pytest.mark.parametrize(
    ("kind", "product", "message"),
    [
        (Broken, "matvec", "step 1 failed on machine 2: OSError: the disk is full"),
        (Short, "matvec", "machine 2 answered nan"),
        (Short, "rmatvec", "machine 2 answered numbers that are not finite"),
    ],
)
def test_a_failed_machine_is_named_with_the_reason(comm, store, X, kind, product, message):
    with open_with(comm, store, kind) as master:
        if master is not None:
            vector = np.ones(X.shape[product == "matvec"])
            if kind is Broken:
                master.matvec(vector)
            with pytest.raises(MachineError, match=message):
                getattr(master, product)(vector)


def test_invalid_messages_are_rejected_before_they_are_sent(comm, store):
    if comm.rank:
        return
    manifest = open_store(store).manifest
    plan = Planner(2, manifest.rows_per_shard).plan((1, 2, 3), (1.0, 1.0, 1.0))
    for machines, values, message in (
        ((1, 2, 3), np.zeros(40, np.float32), "expected"),
        ((1, 2, 3), np.zeros(39), "expected"),
        ((1, 2, 3), np.zeros((40, 2)), "expected"),
        ((1, 2, 3), np.zeros(80)[::2], "expected"),
        ((1, 2, 0), np.zeros(40), "does not fit"),
    ):
        opening = Opening(store, manifest, machines, MachineOptions(), (1,) * 4)
        endpoint = CollectiveMasterEndpoint(CollectiveHub(comm), comm, opening)
        with pytest.raises(InputError, match=message):
            endpoint.announce(0, Product(), plan.assignment, values)
    check_message_sizes(manifest, 10**6)
    with pytest.raises(InputError, match="at most"):
        check_message_sizes(manifest, 2**31 // 40 + 1)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (InputError("not like this"), InputError, "not like this"),
        (ZeroDivisionError("by nothing"), CecError, "ZeroDivisionError: by nothing"),
        (FileNotFoundError(2, "gone", "a file"), InputError, "a file: gone"),
    ],
)
def test_an_error_of_rank_0_is_raised_on_all_ranks(comm, error, kind, message):
    def fail():
        raise error

    assert call_on_master(comm, lambda: comm.rank, int) == 0
    with pytest.raises(kind, match=message):
        call_on_master(comm, fail, type(None))
