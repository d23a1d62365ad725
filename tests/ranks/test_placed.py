"""Machines with several shards, on ranks."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cec_mpi import open_operator
from cec_mpi.doctor.examine import examine
from cec_mpi.errors import InputError, MachineError
from cec_mpi.options.placed import Placed
from cec_mpi.processes.places import place_of_ranks
from cec_mpi.session import gathering
from cec_mpi.session.copies import stage_together
from cec_mpi.store import open_store
from helpers.products import check_products
from helpers.recording import Kept

pytestmark = pytest.mark.mpi(min_size=4)

MACHINES, RECOVERY, ROWS, COLUMNS = 8, 3, 90, 12


@pytest.fixture(scope="module")
def several(make_store):
    """A store of eight shards, any three of which are enough."""
    X = np.random.default_rng(5).standard_normal((ROWS, COLUMNS))
    return make_store(X, machines=MACHINES, recovery=RECOVERY)


@pytest.mark.parametrize("way", [1, 2, 3, (4, 2, 2), (1, 1, 6), "auto"])
@pytest.mark.parametrize("columns", [3, 300])
def test_products_on_three_machines(comm, several, way, columns):
    """Short messages and long ones."""
    kept = Kept()
    options = {"shards_per_machine": way, "recorder": kept}
    with open_operator(several.path, comm, **options) as operator:
        if operator is not None:
            check_products(operator, several.X, columns)
            there = kept.common["shards_of_machine"]
            for gone in (1, 2, 3):
                left = {1, 2, 3} - {gone}
                if sum(len(there[n - 1]) for n in left) >= RECOVERY:
                    operator.available = left
                    check_products(operator, several.X, columns)
            assert kept.common["machine_of_rank"] == [0, 1, 2, 3]
            assert {len(record.rows) for record in kept.records} == {3}
            assert all(
                record.rows[n - 1] == 0
                for record in kept.records
                for n in {1, 2, 3} - set(record.available)
            )


def test_automatic_shares_follow_speeds_that_are_given(comm, several):
    kept = Kept()
    options = {"shards_per_machine": "auto", "speeds": (1, 1, 6), "recorder": kept}
    with open_operator(several.path, comm, **options) as operator:
        if operator is not None:
            operator @ np.ones(COLUMNS)
            assert kept.common["shards_of_machine"] == [[1], [2], [3, 4, 5, 6, 7, 8]]
            assert kept.records[0].rows == [11, 11, 68]


def test_automatic_shares_follow_the_memory_of_nodes(comm, several, monkeypatch):
    """On rank 0, which alone decides, the last machine is on a node of little memory."""
    size = open_store(several.path).manifest.shard_bytes

    def places(comm):
        found = place_of_ranks(comm)
        return [replace(each, ranks=1, memory=9 * size) for each in found[:-1]] + [
            replace(found[-1], ranks=2, memory=3 * size)
        ]

    monkeypatch.setattr(gathering, "place_of_ranks", places)
    kept = Kept()
    options = {"shards_per_machine": "auto", "speeds": (1, 1, 6), "recorder": kept}
    with open_operator(several.path, comm, **options) as operator:
        if operator is not None:
            assert kept.common["shards_of_machine"] == [[1, 2, 3, 4], [5, 6, 7], [8]]
            check_products(operator, several.X, 2)


def test_a_further_store_and_emulated_speeds(comm, several, make_store):
    other = make_store(several.X, machines=5, recovery=2)
    kept = Kept()
    options = {"shards_per_machine": (4, 2, 2), "emulate_speeds": (2, 1, 1), "recorder": kept}
    with open_operator(several.path, comm, **options) as operator:
        if operator is not None:
            with operator.open(other.path) as further:
                check_products(further, several.X, 2)
            check_products(operator, several.X, 2)
            assert kept.common["emulation"]["speeds"] == (2.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (None, "needs 9, one for the master and one for each of its 8 machines"),
        (None, "--shards-per-machine auto shares its shards out to fewer"),
        ((4, 4), "4 ranks were started: --shards-per-machine 4,4 needs 3, one for the master"),
        (4, "4 ranks were started: --shards-per-machine 4,4 needs 3, one for the master"),
    ],
)
def test_another_number_of_ranks_is_refused(comm, several, way, words):
    with (
        pytest.raises(InputError, match="ranks were started") as caught,
        open_operator(several.path, comm, shards_per_machine=way),
    ):
        pass
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("way", "there"), [(3, [[1, 2, 3], [4, 5, 6], [7, 8]]), ("auto", None), ((4, 4), None)]
)
def test_doctor_looks_at_the_shards_of_each_machine(comm, several, way, there, capsys):
    found = examine(comm, str(several.path), True, placed=Placed(shards_per_machine=way))
    if comm.rank == 0:
        told = json.loads(capsys.readouterr().out)["store"]
        assert found == (2 if way == (4, 4) else 0)  # which is no number for three
        assert [n for mine in told["shards_of_machine"] for n in mine] == list(range(1, 9))
        assert there in (None, told["shards_of_machine"])
        assert [each["shard"] for each in told["shards"]] == list(range(1, 9))


def test_doctor_shares_shards_out_by_speed(comm, several, capsys):
    placed = Placed(shards_per_machine="auto")
    examine(comm, str(several.path), True, placed=placed, speeds=(1.0, 1.0, 2.0))
    if comm.rank == 0:
        told = json.loads(capsys.readouterr().out)["store"]
        assert told["shards_of_machine"] == [[1, 2], [3, 4], [5, 6, 7, 8]]


def test_doctor_wants_a_store_with_it(comm):
    with pytest.raises(InputError, match="memory per machine need a store"):
        examine(comm, placed=Placed(shards_per_machine=2))


def test_each_rank_stages_the_shards_of_its_machine(comm, several, shared_directory):
    copies = shared_directory / "copies of several"
    options = Placed(shards_per_machine=3)
    seen = []
    staged = stage_together(
        *(comm, str(several.path), str(copies), None, options),
        watch=lambda *so_far: seen.append(so_far),
    )
    sizes = [size for _, _, size in staged]
    assert [machine for _, machine, _ in staged] == [1, 2, 3]
    assert sizes[0] == sizes[1] == 3 * sizes[2] / 2
    assert len(list(copies.glob("*.npy"))) == MACHINES
    if comm.rank == 0:
        assert seen[-1][0] <= seen[-1][1]
    staged = stage_together(comm, str(several.path), str(copies), None, options)
    assert [size for _, _, size in staged] == [0, 0, 0]
    further = str(shared_directory / "copies by speed"), None, Placed(shards_per_machine="auto")
    staged = stage_together(comm, str(several.path), *further, (1.0, 1.0, 2.0))
    assert [4 * size // sum(sizes) for _, _, size in staged] == [1, 1, 2]


def ask(operator, columns):
    return operator is not None and operator @ np.ones((COLUMNS, columns))


@pytest.mark.parametrize(("fault", "columns"), [("nan:2@0", 1), ("inf:2@0", 400)])
def test_a_machine_that_answers_no_numbers_is_named(comm, several, fault, columns):
    with (
        pytest.raises(MachineError, match="machine 2 answered"),
        open_operator(several.path, comm, shards_per_machine=3, inject=fault) as operator,
    ):
        ask(operator, columns)
