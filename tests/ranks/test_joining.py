"""Ranks and machines that joined work side by side in one step."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import ExitStack

import numpy as np
import pytest

from cec_mpi import open_operator
from cec_mpi.errors import InputError
from helpers.commands import finish, start
from helpers.recording import Kept

pytestmark = [
    pytest.mark.mpi(min_size=4),
    pytest.mark.filterwarnings("ignore:accept. this launcher ends the job"),
]
LIMIT = 30  # seconds


class Made:
    """An operator that machines join, with steps that are looked at; of rank 0."""

    def __init__(self, operator, X, recorder, file, stack):
        self.operator, self.X, self.recorder = operator, X, recorder
        self.file, self.stack = file, stack
        self.random = np.random.default_rng(5)
        self.started = []

    def join(self, count):
        for _ in range(count):
            command = start(["cec-mpi", "join", self.file], cwd=self.file.parent)
            # A launcher that binds ranks has bound what this one starts, too.
            os.sched_setaffinity(command.process.pid, range(os.cpu_count()))
            self.started.append(command)
            self.stack.callback(finish, command, 3)
        return [each.process for each in self.started[-count:]]

    def step(self):
        rows, columns = self.X.shape
        W, v = self.random.standard_normal((columns, 2)), self.random.standard_normal(rows)
        np.testing.assert_allclose(self.operator @ W, self.X @ W, atol=1e-9)
        np.testing.assert_allclose(self.operator.rmatvec(v), self.X.T @ v, atol=1e-9)

    def until(self, condition):
        due = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < due, self.recorder.happened
            self.step()
            time.sleep(0.01)  # for those that start on the same cores

    def happened(self, kind):
        """Machines to which something of this kind has happened."""
        return [event[kind] for event in self.recorder.happened if kind in event]

    def codes(self):
        return [each.process.wait(LIMIT) for each in self.started]


@pytest.fixture(scope="module")
def six(cec_make_store):
    """Six machines, any three of which are enough."""
    return cec_make_store(
        np.random.default_rng(4).standard_normal((60, 40)), machines=6, recovery=3
    )


@pytest.fixture
def accepting(comm, shared_directory, request):
    """Call `use` on rank 0 with an operator that machines join."""

    def accepting(store, use, **options):
        file, recorder = shared_directory / f"{request.node.originalname}.conn", Kept()
        given = {"accept": str(file), "recorder": recorder, **options}
        with ExitStack() as stack:
            made = None
            with open_operator(store.path, comm, **given) as operator:
                if operator is not None:
                    made = Made(operator, store.X, recorder, file, stack)
                    use(made)
            if made is not None:
                assert not file.exists()
                return made.codes()
        return None

    return accepting


@pytest.mark.parametrize("options", [{}, {"stragglers": 1, "check": "parity"}])
def test_steps_are_right_while_machines_come_and_go(accepting, six, options):
    def use(made):
        first = made.join(2)
        made.until(lambda: len(made.happened("joined")) == 2)
        first[0].kill()
        made.until(lambda: len(made.happened("lost")) == 1)
        made.join(2)
        made.until(lambda: len(made.happened("joined")) == 4)
        first[1].send_signal(signal.SIGTERM)
        made.until(lambda: first[1].poll() is not None)
        gone = made.happened("lost") + made.happened("leaving")
        assert sorted(made.happened("joined")) == sorted([4, 5, 6, gone[0]])
        assert len(made.recorder.records[-1].available) == 5
        assert made.recorder.common["machine_of_rank"] == [0, 1, 2, 3]
        made.operator.available = {*made.recorder.records[-1].available} - {1}
        made.step()

    codes = accepting(six, use, **options)
    assert codes in (None, [-signal.SIGKILL, 6, 0, 0])


def test_a_rank_that_has_to_leave_is_replaced_by_who_joined(accepting, six):
    def use(made):
        made.join(1)
        made.until(lambda: made.happened("joined"))
        assert made.happened("leaving") == [4]
        assert made.happened("joined") == [4]

    options = {"machines": "2,4,6", "inject": "leave:4@2", "wait": True}
    assert accepting(six, use, **options) in (None, [0])


def test_ranks_that_are_too_many_wait_as_spares(accepting, six):
    def use(made):
        assert made.recorder.common["machine_of_rank"] == [0, 1, 3, 0]
        made.until(lambda: made.happened("joined"))
        assert made.recorder.happened[1:] == [
            {"joined": 1, "rank": 3, "host": socket.gethostname()}
        ]

    accepting(six, use, machines="1,3", shards_per_machine=2, inject="leave:1@2")


def test_a_second_store_is_served_by_both_kinds(accepting, six, cec_make_store):
    other = cec_make_store(
        np.random.default_rng(7).standard_normal((31, 12)), machines=5, recovery=2
    )

    def use(made):
        made.join(1)
        made.until(lambda: made.happened("joined"))
        with made.operator.open(other.path) as Y:
            made.join(1)
            w = np.ones(12)
            due = time.monotonic() + LIMIT
            while set(made.happened("joined")) < {4, 5}:
                assert time.monotonic() < due
                np.testing.assert_allclose(Y @ w, other.X @ w, atol=1e-10)
            Y.available = {4, 5}
            np.testing.assert_allclose(Y @ w, other.X @ w, atol=1e-10)

    assert accepting(six, use) in (None, [0, 0])


def test_fewer_shards_than_a_step_needs_are_taken_over_or_waited_for(accepting, six):
    def use(made):
        made.step()
        assert made.happened("adopted") != []
        made.join(1)
        made.until(lambda: made.happened("joined"))

    assert accepting(six, use, adopt=True, machines="1,2,5,6", inject="leave:1@0,leave:2@0") in (
        None,
        [0],
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"spares": 1}, "spares with accept: ranks and machines that join wait as spares"),
        ({"replace": "spawn"}, "replace spawn with accept"),
        ({"accept": True}, "accept True: expected the name of a file"),
        ({"accept": "/no/where"}, "accept /no/where: /no is not a directory"),
        ({"ports": (5, "x")}, "ports 'x': expected"),
        ({"interface": "eth77"}, "interface 'eth77': rank 0 on"),
        ({"emulate_speeds": [1] * 6}, "emulate speeds with accept: expected a base too"),
    ],
)
def test_what_is_refused(accepting, six, options, expected):
    with pytest.raises(InputError, match=expected):
        accepting(six, lambda made: None, **options)
