"""A process that carries several machines: what it computes for each, and what it reports."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.session.serving import answer, serve
from cec_mpi.runtime.wire.orders import Admission, Close, Multiply, Open, Opening, Part, Stop

ROWS, COLUMNS = 120, 5  # of a shard
X = np.random.default_rng(3).standard_normal((2 * ROWS, COLUMNS))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"machines": 0}, "machines 0: expected a whole number from 1 to 100000"),
        ({"machines": 2.5}, "machines 2.5: expected a whole number"),
        ({"machines": 10**30}, "machines 10+: expected a whole number"),
        ({"machine": 10**30}, "machine 10+: expected a whole number"),
        ({"memory": 1e30}, "none does not exist"),
        ({"memory": 0}, "memory 0: expected a number of bytes, or a fraction up to 1"),
        ({"memory": np.nan}, "memory nan: expected a number of bytes"),
        ({"retry": np.nan}, "retry nan: expected a number of seconds"),
        ({"retry": -1}, "retry -1: expected a number of seconds"),
        ({"retry": "1m"}, "retry '1m': expected a number of seconds"),
        ({"memory": "64G"}, "memory '64G': expected a number of bytes, or a fraction up to 1"),
        ({"threads": 0}, "threads 0: expected a whole number of at least 1"),
        ({}, "none does not exist"),
    ],
)
def test_what_a_program_that_joins_refuses(options, expected):
    with pytest.raises(InputError, match=expected):
        cec_mpi.join("none", **options)


@pytest.fixture
def store(tmp_path):
    cec_mpi.encode(X, tmp_path / "store", 3, 2, scaling="none")
    return cec_mpi.open_store(tmp_path / "store")


@pytest.fixture
def machines(store):
    return {n: Machine(n, store.open_shard(n), COLUMNS, np.float64) for n in (1, 2, 3)}


PARTS = Part(3, ((0, 10), (40, 70))), Part(1, ((5, 85),))


def rows_of(store, part):
    return np.concatenate([store.shard(part.machine)[a:b] for a, b in part.intervals])


@pytest.mark.parametrize("columns", [1, 4])
def test_each_machine_answers_its_rows(store, machines, columns):
    W = np.random.default_rng(0).standard_normal((columns, COLUMNS))
    values, reports = answer(machines, Multiply(0, Product(False, columns), PARTS), W)
    for part, found in zip(PARTS, values, strict=True):
        np.testing.assert_allclose(found, (rows_of(store, part) @ W.T).ravel())
    assert [report.problem for report in reports] == ["", ""]


@pytest.mark.parametrize("columns", [1, 4])
def test_parts_of_the_adjoint_are_summed(store, machines, columns):
    U = np.random.default_rng(0).standard_normal((120, columns))
    order = Multiply(0, Product(True, columns), PARTS)
    rows = np.concatenate([rows_of(store, part) for part in PARTS])
    for _ in range(2):  # the arrays of the first time are used again
        (found,), _ = answer(machines, order, U)
        np.testing.assert_allclose(found, (rows.T @ U).ravel())


def test_a_machine_that_fails_is_left_out_of_the_sum(store, machines):
    machines[3] = Machine(3, None, COLUMNS, np.float64)
    U = np.random.default_rng(0).standard_normal((120, 1))
    (found,), (failed, good) = answer(machines, Multiply(0, Product(True, 1), PARTS), U)
    np.testing.assert_allclose(found, rows_of(store, PARTS[1]).T @ U[40:, 0])
    assert ("no shard" in failed.problem, good.problem) == (True, "")
    machines[1] = Machine(1, None, COLUMNS, np.float64)
    (found,), reports = answer(machines, Multiply(0, Product(True, 1), PARTS), U)
    assert np.isnan(found).all()
    assert all(report.problem for report in reports)


def test_each_machine_has_an_equal_part_of_the_speed_of_its_host(machines):
    w = np.ones((1, COLUMNS))
    _, reports = answer(machines, Multiply(0, Product(False, 1), PARTS), w)
    speeds = [rows / report.seconds for rows, report in zip((40, 80), reports, strict=True)]
    assert speeds[0] == pytest.approx(speeds[1])


def test_emulated_speeds_are_those_of_all_machines_of_a_host_at_once(machines):
    emulation = Emulation((1.0, 1.0, 1.0), 400.0)
    for machine in machines.values():
        machine.emulation = emulation
    parts = tuple(Part(n, ((0, 40),)) for n in machines)
    _, reports = answer(machines, Multiply(0, Product(False, 1), parts), np.ones((1, COLUMNS)))
    assert all(report.seconds >= 0.1 for report in reports)


class GivenAndTaken:
    """An end whose master gives a host machines, and takes one of them away again and again."""

    def __init__(self, opening):
        gives = [Open(opening, n, 1) for n in (1, 2)]
        self.orders = iter([*gives, *[Close(2), gives[1]] * 5, Stop()])
        self.logs = []

    def receive_order(self, signals):
        self.logs.append(len(logging.getLogger("cec_mpi").handlers))
        return next(self.orders)

    def send_open_report(self, opened):
        assert opened.shard
        return Admission()

    def check_connection(self):
        pass


def test_a_host_has_one_log_open_for_each_machine_that_it_carries(store, tmp_path):
    options = SessionOptions().validate(store.manifest).machine_options()
    opening = Opening(store.path, store.manifest, (1, 2), options, (1, 1, 1), tmp_path / "logs")
    end = GivenAndTaken(opening)
    before = len(logging.getLogger("cec_mpi").handlers)
    assert serve(end) is None
    assert [count - before for count in end.logs] == [0, 1, *[2, 1] * 5, 2]
    assert "machine 2 reads" in (tmp_path / "logs" / "machine-0002.log").read_text()
