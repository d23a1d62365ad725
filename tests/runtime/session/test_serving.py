"""A host of several machines: its answers and reports."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.session.serving import compute_answers, serve
from cec_mpi.runtime.wire.orders import Admission, Close, Multiply, Open, Opening, Part, Stop
from cec_mpi.store.files.log_file import log_file

ROWS, COLUMNS = 120, 5  # of a shard
X = np.random.default_rng(3).standard_normal((2 * ROWS, COLUMNS))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *(("machines", value, "a whole number from 1 to 100000") for value in (0, 2.5, 10**30)),
        ("machine", 10**30, "a whole number from 1 to 100000"),
        *(("memory", value, "a number of bytes, or a fra") for value in (0, np.nan, "64G")),
        *(("retry", value, "a number of seconds") for value in (np.nan, -1, "1m")),
        ("threads", 0, "a whole number of at least 1"),
    ],
)
def test_join_rejects_invalid_values(name, value, expected):
    with pytest.raises(InputError, match=f"^{name} .*: expected {expected}"):
        cec_mpi.join("absent", **{name: value})
    with pytest.raises(InputError, match="absent does not exist"):
        cec_mpi.join("absent", memory=1e30)


@pytest.fixture
def store(tmp_path):
    cec_mpi.encode(X, tmp_path / "store", 3, 2, scaling="none")
    return cec_mpi.open_store(tmp_path / "store")


@pytest.fixture
def machines(store):
    return {n: Machine(n, store.open_shard(n), COLUMNS, np.float64) for n in (1, 2, 3)}


PARTS = Part(3, ((0, 10), (40, 70))), Part(1, ((5, 85),))


def part_rows(store, part):
    return np.concatenate([store.shard(part.machine)[a:b] for a, b in part.intervals])


@pytest.mark.parametrize("columns", [1, 4])
def test_a_host_computes_the_rows_of_its_machines(store, machines, columns):
    rng = np.random.default_rng(0)
    W, U = rng.standard_normal((columns, COLUMNS)), rng.standard_normal((120, columns))
    values, reports = compute_answers(machines, Multiply(0, Product(False, columns), PARTS), W)
    for part, answer in zip(PARTS, values, strict=True):
        np.testing.assert_allclose(answer, (part_rows(store, part) @ W.T).ravel())
    assert [report.problem for report in reports] == ["", ""]
    rows = np.concatenate([part_rows(store, part) for part in PARTS])
    for _ in range(2):  # arrays are reused
        (answer,), _ = compute_answers(machines, Multiply(0, Product(True, columns), PARTS), U)
        np.testing.assert_allclose(answer, (rows.T @ U).ravel())


def test_the_sum_of_terms_excludes_those_that_failed(store, machines):
    machines[3] = Machine(3, None, COLUMNS, np.float64)
    U = np.random.default_rng(0).standard_normal((120, 1))
    (answer,), (failed, valid) = compute_answers(machines, Multiply(0, Product(True, 1), PARTS), U)
    np.testing.assert_allclose(answer, part_rows(store, PARTS[1]).T @ U[40:, 0])
    assert ("no shard" in failed.problem, valid.problem) == (True, "")
    machines[1] = Machine(1, None, COLUMNS, np.float64)
    (answer,), reports = compute_answers(machines, Multiply(0, Product(True, 1), PARTS), U)
    assert np.isnan(answer).all()
    assert all(report.problem for report in reports)


def test_machines_of_a_host_share_its_speed_equally(machines):
    w = np.ones((1, COLUMNS))
    _, reports = compute_answers(machines, Multiply(0, Product(False, 1), PARTS), w)
    speeds = [rows / report.seconds for rows, report in zip((40, 80), reports, strict=True)]
    assert speeds[0] == pytest.approx(speeds[1])


class Endpoint:
    """The endpoint of a host that opens two machines, and repeatedly closes one."""

    def __init__(self, opening):
        open_orders = [Open(opening, n, 1) for n in (1, 2)]
        self.orders = iter([*open_orders, *[Close(2), open_orders[1]] * 5, Stop()])
        self.handler_counts = []

    def receive_order(self, signals):
        self.handler_counts.append(len(logging.getLogger("cec_mpi").handlers))
        return next(self.orders)

    def send_open_report(self, report):
        assert report.shard_path
        return Admission()

    def check_connection(self):
        pass


def test_a_host_has_one_open_log_for_each_machine(store, tmp_path):
    options = SessionOptions().validate(store.manifest).machine_options()
    opening = Opening(store.path, store.manifest, (1, 2), options, (1, 1, 1), tmp_path / "logs")
    endpoint = Endpoint(opening)
    before = len(logging.getLogger("cec_mpi").handlers)
    assert serve(endpoint) is None
    assert [count - before for count in endpoint.handler_counts] == [0, 1, *[2, 1] * 5, 2]
    assert "machine 2 reads" in (tmp_path / "logs" / "machine-0002.log").read_text()


def test_a_log_escapes_characters_that_are_not_printable(tmp_path, capfd, monkeypatch):
    # pytest would keep the message, and xdist cannot send it.
    monkeypatch.setattr(logging.getLogger("cec_mpi"), "propagate", False)
    with log_file(tmp_path / "machine.log"):
        logging.getLogger("cec_mpi").info("reads %s", Path("caf\udce9/\x1b[2J\u202e"))
    assert (tmp_path / "machine.log").read_text().endswith(r"reads caf\udce9/\x1b[2J\u202e" + "\n")
    assert capfd.readouterr() == ("", "")
