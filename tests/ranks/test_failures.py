"""What goes wrong on one rank is known to all, and nobody is left waiting."""

from __future__ import annotations

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
from cec_mpi.runtime.processes.places import Place
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
    ("options", "error", "words"),
    [
        ({"speeds": (1.0, 2.0)}, InputError, "2 speeds"),
        ({"machines": (1, 2)}, InputError, "4 ranks were started"),
        ({"machines": (1,)}, InfeasibleError, "needs 2"),
        ({"sped": (1.0,)}, InputError, "sped"),
    ],
)
def test_wrong_options_raise_on_all_ranks(comm, store, options, error, words):
    with pytest.raises(error, match=words), open_operator(store, comm, **options):
        pass


def test_a_store_that_is_missing_raises_on_all_ranks(comm, shared_directory):
    with (
        pytest.raises(Exception, match="does not exist, expected a store"),
        open_operator(shared_directory / "nowhere", comm),
    ):
        pass


def test_several_shards_that_cannot_be_opened_are_one_message(comm, store, shared_directory):
    import shutil

    copy = shared_directory / "without shards"
    if comm.rank == 0:
        shutil.copytree(store, copy)
        for shard in copy.glob("shard-*"):
            shard.unlink()
    comm.Barrier()
    with (
        pytest.raises(DamagedStoreError, match=r"machine 1 .*missing.*2 more"),
        open_operator(copy, comm),
    ):
        pass


def test_a_block_damaged_under_a_measurement_raises_on_all_ranks(comm, store, shared_directory):
    import shutil

    copy = shared_directory / "altered"
    if comm.rank == 0:
        shutil.copytree(store, copy)
        with (copy / "shard-0001.npy").open("r+b") as file:
            file.seek(4000)
            file.write(b"altered")
    comm.Barrier()
    for where in (comm, None) if comm.rank == 0 else (comm,):
        with (
            pytest.raises(DamagedStoreError, match=r"machine 1 .*cannot start: .*shard-0001.npy"),
            open_operator(copy, where, emulate_speeds=(1.0, 2.0, 3.0)),
        ):
            pass


def test_an_exception_of_the_caller_leaves_all_ranks(comm, store):
    with pytest.raises(KeyError, match="mine"), open_operator(store, comm) as X:
        raise KeyError("mine", X.matvec(np.ones(40)).sum())


def test_too_few_machines_are_refused_and_the_next_step_works(comm, store, X):
    with open_operator(
        store, comm, availability=ListedAvailability([(1,), (1,), (2, 3)])
    ) as operator:
        if operator is not None:
            with pytest.raises(InfeasibleError, match="1 machine is available at tick 0"):
                operator.matvec(np.ones(40))
    with open_operator(
        store, comm, availability=ListedAvailability([(1,), (1,), (2, 3)]), wait=True
    ) as operator:
        if operator is not None:
            np.testing.assert_allclose(operator.matvec(np.ones(40)), X.sum(axis=1), atol=1e-10)


class Broken(Machine):
    """Fails in step 1."""

    def compute(self, product, values, step):
        if step == 1:
            raise OSError("the disk is on fire")
        return super().compute(product, values, step)


class Short(Machine):
    """Leaves its last answer as the buffer was."""

    def compute(self, product, values, step):
        seconds = super().compute(product, values, step)
        self.values[-1] = np.nan
        return seconds


@contextmanager
def machines_of_which_one_is(comm, store, kind):
    """Machine 2 is of another kind: the master on rank 0, None elsewhere."""
    if comm.rank:
        yield serve(CollectiveMachineEndpoint(comm), kind if comm.rank == 2 else Machine)
        return
    hub = CollectiveHub(comm)
    with ExitStack() as kept:
        session = Session(hub, place_of_one() * 4, kept, library="MPI")
        yield session.open(store, SessionOptions(), Recorder())
    hub.stop(None)


def place_of_one():
    return [Place("here", 1, 1, 1)]


def test_a_machine_that_raises_is_named_with_its_reason(comm, store):
    with machines_of_which_one_is(comm, store, Broken) as master:
        if master is not None:
            master.matvec(np.ones(40))
            with pytest.raises(MachineError, match=r"step 1 failed on machine 2: OSError: the d"):
                master.matvec(np.ones(40))


@pytest.mark.parametrize("product", ["matvec", "rmatvec"])
def test_a_short_answer_shows(comm, store, X, product):
    with machines_of_which_one_is(comm, store, Short) as master:
        if master is not None:
            with pytest.raises(
                MachineError, match=r"machine 2 answered (nan|numbers that are not)"
            ):
                getattr(master, product)(np.ones(X.shape[1 if product == "matvec" else 0]))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(40, np.float32),
        np.zeros(40, np.int64),
        np.zeros(39),
        np.zeros((40, 2)),
        np.zeros(80)[::2],
    ],
)
def test_a_buffer_that_does_not_fit_is_refused_before_it_is_sent(comm, store, array):
    if comm.rank == 0:
        with pytest.raises(InputError, match="expected"):
            end_of(comm, store).announce(0, Product(), plan_of(store).assignment, array)


def plan_of(store):
    return Planner(2, open_store(store).manifest.rows_per_shard).plan((1, 2, 3), (1.0, 1.0, 1.0))


def end_of(comm, store, machines=(1, 2, 3)):
    manifest = open_store(store).manifest
    opening = Opening(store, manifest, machines, MachineOptions(), (1,) * 4)
    return CollectiveMasterEndpoint(CollectiveHub(comm), comm, opening)


@pytest.mark.parametrize(("columns", "fits"), [(1, True), (10**6, True), (2**31 // 40 + 1, False)])
def test_messages_that_mpi_cannot_carry_are_refused(store, columns, fits):
    manifest = open_store(store).manifest
    if fits:
        check_message_sizes(manifest, columns)
    else:
        with pytest.raises(InputError, match="at most"):
            check_message_sizes(manifest, columns)


def test_an_assignment_that_does_not_fit_is_refused_before_it_is_sent(comm, store):
    if comm.rank == 0:
        end = end_of(comm, store, (1, 2, 0))
        with pytest.raises(InputError, match="does not fit"):
            end.announce(0, Product(), plan_of(store).assignment, np.zeros(40))


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (InputError("not like this"), InputError, "not like this"),
        (ZeroDivisionError("by nothing"), CecError, "ZeroDivisionError: by nothing"),
        (FileNotFoundError(2, "gone", "a file"), InputError, "a file: gone"),
    ],
)
def test_what_rank_0_raises_all_raise(comm, capsys, error, kind, words):
    def fail():
        raise error

    assert call_on_master(comm, lambda: comm.rank, int) == 0
    with pytest.raises(kind, match=words):
        call_on_master(comm, fail, type(None))
