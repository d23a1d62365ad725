"""Machines in tasks of a real Ray cluster on this computer."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from cec_mpi.engines.ray import machines, pool
from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from helpers.waiting import wait_until

if find_spec("ray"):
    import ray

pytestmark = [pytest.mark.any_mpi, pytest.mark.needs("ray")]

SETTINGS = {
    "RAY_AUTH_MODE": "disabled",  # otherwise Ray writes a token into the home directory
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@pytest.fixture(scope="module")
def session():
    """Start Ray with four CPUs; yield the directory of its logs."""
    directory = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # Ray's sockets need short names
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        ray.init(
            num_cpus=4,
            include_dashboard=False,
            object_store_memory=100 << 20,
            _temp_dir=directory,
        )
        yield Path(directory)
        ray.shutdown()
    shutil.rmtree(directory, ignore_errors=True)


def test_a_killed_worker_is_restarted(open_operator, session, conn, machine_processes):
    with open_operator(accept=conn) as checked:
        with machines(3, conn):
            checked.run_until(lambda: len(checked.event_machines("joined")) == 3)
            pid = checked.operator.pids[1]
            os.kill(machine_processes()[pid], signal.SIGKILL)  # the worker process
            checked.run_until(lambda: len(checked.event_machines("joined")) == 4)
            assert checked.event_machines("joined")[-1:] == checked.event_machines("lost", "left")
            checked.run_until(lambda: not psutil.pid_exists(pid))
            assert len(machine_processes()) == 3
        assert not machine_processes()


def test_tasks_take_options_of_ray_and_host_several_machines(
    open_operator, session, conn, machine_processes
):
    with open_operator(accept=conn) as checked, machines(3, conn, per_task=2, num_cpus=2):
        checked.run_until(lambda: len(checked.event_machines("joined")) == 4)
        assert len(machine_processes()) == 2  # the third one waits for two CPUs


@pytest.mark.parametrize("lost", ["machine", "worker"])
def test_a_pool_keeps_its_size(open_operator, session, conn, machine_processes, lost):
    with open_operator(accept=conn) as checked, machines(3, conn, keep=3):
        checked.run_until(lambda: len(checked.event_machines("joined")) == 3)
        pid = checked.operator.pids[1]
        if lost == "machine":
            os.kill(pid, signal.SIGTERM)  # like a notice of preemption
        else:
            os.kill(machine_processes()[pid], signal.SIGKILL)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 4)
        checked.run_until(lambda: len(machine_processes()) == 3)


def test_a_pool_may_have_ended_before_it_is_closed(open_operator, session, conn, machine_processes):
    with open_operator(accept=conn) as checked:
        pool_of_two = machines(2, conn, keep=2)
        checked.run_until(lambda: len(checked.event_machines("joined")) == 2)
    wait_until(lambda: not machine_processes())
    time.sleep(1.0)  # the pool notices that its tasks have ended
    assert not machine_processes()
    pool_of_two.close()


def test_an_operator_starts_and_ends_machines_of_a_pool(open_operator, session, machine_processes):
    with open_operator(engine=pool(3)) as checked:
        checked.run_until(lambda: len(checked.event_machines("joined")) == 3)
    assert not machine_processes()


def test_the_keys_are_in_no_log_command_line_or_environment(open_operator, session, conn, capfd):
    with open_operator(accept=conn) as checked, machines(3, conn):
        checked.run_until(lambda: len(checked.event_machines("joined")) == 3)
        file = read_connection_file(conn)
        texts = [
            (Path(f"/proc/{process.pid}") / name).read_bytes()
            for process in (psutil.Process(), *psutil.Process().children(recursive=True))
            for name in ("cmdline", "environ")
        ]
    files = [path for path in session.rglob("*") if path.is_file()]
    logs = [path.read_bytes() for path in files]
    assert any(b"task_name:cec_mpi machine" in text for text in logs)  # in the log of a worker
    texts += logs
    texts += [text.encode() for text in capfd.readouterr()]
    keys = file.server_key, file.secret_key, file.public_key
    assert not [key for key in keys for text in texts if key in text]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": 0}, "tasks 0: expected at least 1"),
        ({"per_task": 0}, "per_task 0: expected at least 1"),
        ({"keep": 0}, "keep 0: expected at least 1"),
        ({"keep": 2}, "keep 2: expected at most 1"),
        ({"join": {"machines": 2}}, "join 'machines': expected one of"),
        ({"num_cpu": 2}, "options of Ray: .*num_cpu"),
        ({"num_cpus": "x"}, "options of Ray: .*'x'"),
        ({"connection": "nowhere.json"}, "nowhere.json does not exist"),
    ],
)
def test_invalid_options_are_refused_before_machines_start(
    open_operator, session, conn, machine_processes, options, message
):
    with open_operator(accept=conn), pytest.raises(InputError, match=message):
        machines(**{"tasks": 1, "connection": conn, **options})
    assert not machine_processes()
