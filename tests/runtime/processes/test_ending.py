"""The end of a process: other ranks of its job, forks, and recorded signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from cec_mpi.runtime.processes.ending import SignalRecorder, exit_on_signal, kill_ranks
from cec_mpi.runtime.processes.launcher import remove_launcher_variables
from helpers.waiting import LIMIT


def open_mpi(rank, job="prterun-node1-7@1"):
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": job}


def srun(rank, step="0"):
    job = {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}
    return {**job, "SLURM_PROCID": str(rank), "SLURM_STEP_ID": step}


@pytest.fixture
def start():
    """Start a process with these variables of a launcher."""
    processes = []

    def start(variables):
        environment = remove_launcher_variables(os.environ) | variables
        processes.append(subprocess.Popen(["sleep", "1000"], env=environment))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait(LIMIT)


@pytest.fixture
def set_launcher(monkeypatch, no_launcher):
    """Make this process one that a launcher has started."""

    def set_launcher(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_launcher


@pytest.mark.parametrize("launcher", [open_mpi, srun])
def test_only_the_given_ranks_of_this_job_are_killed(launcher, start, set_launcher):
    other_variables = [launcher(1, "9"), open_mpi(1, "prterun-node1-8@1"), srun(1, "3"), {}]
    set_launcher(launcher(0))
    ranks = [start(launcher(rank)) for rank in (1, 2, 3)]
    other_processes = [start(variables) for variables in other_variables]
    kill_ranks([])
    assert kill_ranks([1, 3, 10]) == {1, 3}
    assert [ranks[n].wait(LIMIT) for n in (0, 2)] == [-signal.SIGKILL] * 2
    assert [process.poll() for process in (ranks[1], *other_processes)] == [None] * 5


@pytest.mark.parametrize("variables", [{}, {"PMI_RANK": "0", "PMI_SIZE": "4"}])
def test_a_process_without_a_known_job_kills_no_rank(variables, start, set_launcher):
    set_launcher(variables)
    processes = [start(environ) for environ in (variables | {"PMI_RANK": "1"}, open_mpi(1), {})]
    assert kill_ranks([0, 1]) == set()
    assert [process.poll() for process in processes] == [None] * 3


FORK_PROGRAM = """
import os, sys
from cec_mpi.runtime.processes.ending import abort_job_at_exit
abort_job_at_exit()
child = os.fork()
if not child:
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_does_not_abort_the_job_at_exit(run):
    done = run([sys.executable, "-c", FORK_PROGRAM])
    assert (done.stdout, done.returncode) == ("0\n", 3)


# --- signals ------------------------------------------------------------------------------

SHUTDOWN = (signal.SIGTERM, signal.SIGUSR1)


@pytest.fixture
def handled_signals():
    """Return the signals that the previous handlers have handled."""
    numbers = []
    previous = {
        number: signal.signal(number, lambda n, _: numbers.append(n)) for number in SHUTDOWN
    }
    yield numbers
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("numbers", [SHUTDOWN, SHUTDOWN[::-1] * 2])
def test_the_first_signal_is_recorded_instead_of_handled(handled_signals, numbers):
    with suppress(ArithmeticError), SignalRecorder() as signals:
        assert signals.first_signal is None
        for number in numbers:
            signal.raise_signal(number)
        assert signals.first_signal is numbers[0]
        raise ArithmeticError
    assert handled_signals == []
    signal.raise_signal(numbers[0])
    assert handled_signals == [numbers[0]]


def test_a_second_sigterm_is_handled(handled_signals):
    with SignalRecorder(exit_on_second_sigterm=True) as signals:
        for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM):
            signal.raise_signal(number)
        assert handled_signals == []
        assert not signals.must_end
        signal.raise_signal(signal.SIGTERM)
        assert handled_signals == [signal.SIGTERM]
        assert signals.must_end
        assert signals.first_signal is signal.SIGUSR1
    signal.raise_signal(signal.SIGUSR1)
    assert handled_signals == [signal.SIGTERM, signal.SIGUSR1]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("handler", [signal.SIG_DFL, exit_on_signal])
def test_a_child_can_be_terminated_while_it_is_forked(handler):
    previous = signal.signal(signal.SIGTERM, handler)
    try:
        with SignalRecorder():
            for _ in range(30):
                child = os.fork()
                if not child:
                    time.sleep(LIMIT)
                    os._exit(0)
                os.kill(child, signal.SIGTERM)  # usually before the child has begun
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, previous)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.usefixtures("handled_signals")
def test_a_forked_process_has_the_previous_handlers():
    """A handler of Python would not be called while the process waits for a lock."""
    numbers = (*SHUTDOWN, signal.SIGINT)
    previous = [signal.getsignal(number) for number in numbers]
    with SignalRecorder(), SignalRecorder(ignore_interrupts=True) as signals:
        child = os.fork()
        if not child:
            os._exit([signal.getsignal(number) for number in numbers] != previous)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        signal.raise_signal(signal.SIGUSR1)
        assert signals.first_signal is signal.SIGUSR1


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_a_hangup_is_recorded_unless_it_is_ignored(handler):
    previous = signal.signal(signal.SIGHUP, handler)
    try:
        with SignalRecorder(include_hangup=True) as signals:
            signal.raise_signal(signal.SIGHUP)
            assert (signals.first_signal is None) == (handler is signal.SIG_IGN)
        assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, previous)
