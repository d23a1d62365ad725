"""Operators whose machines are processes of this computer, started and ended with them."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
import psutil
import pytest

import cec_mpi
from cec_mpi.errors import InfeasibleError, InputError, MachineError
from cec_mpi.runtime.records.recorder import Recorder
from helpers.products import check_products
from helpers.ranks import machines_here

pytestmark = pytest.mark.usefixtures("no_launcher")


def test_without_a_communicator_all_machines_are_in_this_process(small_store):
    with cec_mpi.open_operator(small_store.path) as operator:
        check_products(operator, small_store.X)
        assert machines_here() == []


def test_machines_are_processes_that_end_with_the_operator(small_store):
    with cec_mpi.open_operator(small_store.path, local=3) as operator:
        check_products(operator, small_store.X)
        machines = machines_here()
        assert {machine.pid for machine in machines} == set(operator.pids.values())
        assert operator.pids.keys() == {1, 2, 3}
        operator.available = {1, 3}
        check_products(operator, small_store.X)
    assert psutil.wait_procs(machines, 60)[1] == []


def test_fewer_machines_are_enough_if_they_are_as_many_as_a_step_needs(small_store):
    with cec_mpi.open_operator(small_store.path, local=2) as operator:
        check_products(operator, small_store.X)
    with (
        pytest.raises(InfeasibleError, match=r"local 1: a step needs 2 machines: .*accept=FILE"),
    ):
        cec_mpi.open_operator(small_store.path, local=1)


@pytest.mark.filterwarnings("error", "ignore:oversubscribed")
def test_a_warning_that_the_program_raises_ends_no_run(make_store, tmp_path):
    made = make_store(np.arange(240.0).reshape(20, 12), 3, 2)
    shard = made.path / "shard-0002.npy"
    shard.write_bytes(shard.read_bytes()[:-200] + bytes(200))
    steps = []
    with cec_mpi.open_operator(
        made.path, local=3, recorder=Recorder(watch=steps.append)
    ) as operator:
        with pytest.raises(UserWarning, match=r"shard-0002\.npy: rows .*cec-mpi repair"):
            operator @ np.ones(12)
        assert len(steps) == 1
        check_products(operator, made.X)


def test_an_operator_does_not_open_without_any_machine(small_store, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    operator = cec_mpi.open_operator(small_store.path, local=2)
    with pytest.raises(MachineError, match="all machines of this run have ended"):
        operator.start()


@pytest.mark.parametrize(
    "option",
    [
        {"elastic": True},
        {"stragglers": 1},
        {"deadline": 1.0},
        {"check": True},
    ],
)
def test_options_for_machines_that_are_processes_need_some(option, small_store):
    with (
        pytest.raises(
            InputError, match=r"needs machines: expected accept=FILE, .* or engine=CLIENT"
        ),
    ):
        cec_mpi.open_operator(small_store.path, None, **option)


def test_under_a_launcher_its_processes_are_the_machines(small_store, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with (
        pytest.raises(InputError, match="has started 2 ranks, which are the machines"),
        cec_mpi.open_operator(small_store.path, local=2),
    ):
        pass


def test_a_forked_process_leaves_the_machines_alone(small_store):
    with cec_mpi.open_operator(small_store.path, local=2) as operator:
        child = os.fork()
        if not child:
            os._exit(0 if _is_refused(operator) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        check_products(operator, small_store.X, 1)


def _is_refused(operator):
    try:
        operator @ np.ones(12)
    except InputError:
        return True
    return False
