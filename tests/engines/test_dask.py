"""Machines next to the workers of a real Dask cluster on this computer."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import dask
import psutil
import pytest
from distributed import Client, LocalCluster

import cec_mpi
from cec_mpi.engines.dask import machines, pool
from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from helpers.processes import find_free_port
from helpers.waiting import wait_until

pytestmark = pytest.mark.any_mpi

WORKERS = 3


@contextmanager
def local_cluster():
    options = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options, silence_logs=logging.CRITICAL) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster():
    """A cluster whose nannies restart workers, so that each test starts with all of them."""
    with local_cluster() as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        client.wait_for_workers(WORKERS)
        yield client


@pytest.fixture
def new_client():
    """A client of a cluster for one test, which may retire workers."""
    with local_cluster() as cluster, Client(cluster) as client:
        yield client


def worker_pids(client):
    """Return the process ID of each worker by its address."""
    return client.run(os.getpid)


def test_each_worker_hosts_machines_until_the_block_ends(
    open_operator, conn, client, machine_processes
):
    with open_operator(accept=conn) as checked:
        with machines(client, conn, per_worker=2):
            checked.run_until(lambda: len(checked.event_machines("joined")) == 4)
            checked.run_until(
                lambda: sorted(machine_processes().values()) == sorted(worker_pids(client).values())
            )
        assert not machine_processes()


def test_a_killed_worker_loses_its_machine_and_its_successor_hosts_one(
    open_operator, conn, client, machine_processes
):
    with open_operator(accept=conn) as checked, machines(client, conn):
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS)
        pid = checked.operator.pids[1]
        os.kill(machine_processes()[pid], signal.SIGKILL)  # the worker
        checked.run_until(lambda: checked.event_machines("lost", "left"))
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS + 1)
        checked.run_until(lambda: not psutil.pid_exists(pid))
        lost = checked.event_machines("lost", "left")
        assert checked.event_machines("joined")[-1:] == lost  # the successor has its number
        checked.run_until(lambda: len(client.scheduler_info()["workers"]) == WORKERS)
        checked.run_until(
            lambda: sorted(machine_processes().values()) == sorted(worker_pids(client).values())
        )


def test_a_killed_machine_is_restarted(open_operator, conn, client):
    with open_operator(accept=conn) as checked, machines(client, conn):
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS)
        os.kill(checked.operator.pids[1], signal.SIGKILL)
        checked.run_until(lambda: checked.event_machines("lost"))
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS + 1)


def test_a_warning_of_the_client_explains_why_machines_do_not_start(open_operator, conn, client):
    with (
        open_operator(accept=conn),
        pytest.warns(UserWarning, match="device mps: .* not started again") as caught,
        machines(client, conn, join={"device": "mps"}),
    ):
        wait_until(lambda: len(caught) > 0)


def test_the_machine_of_a_retired_worker_leaves(open_operator, conn, new_client, machine_processes):
    with open_operator(accept=conn) as checked, machines(new_client, conn):
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS)
        new_client.retire_workers([next(iter(worker_pids(new_client)))])
        checked.run_until(lambda: checked.event_machines("left"))
        assert not checked.event_machines("lost")
        checked.run_until(lambda: len(machine_processes()) == WORKERS - 1)


def test_a_pool_keeps_its_size(open_operator, conn, new_client):
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 s"}),
        open_operator(accept=conn) as checked,
        machines(new_client, conn, keep=WORKERS + 1),
    ):
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS + 1)
        new_client.retire_workers([next(iter(worker_pids(new_client)))])
        checked.run_until(lambda: checked.event_machines("left"))
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS + 2)


def test_an_operator_starts_and_ends_machines_of_a_client(open_operator, client, machine_processes):
    with open_operator(engine=client) as checked:
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS)
    wait_until(lambda: not machine_processes())
    with open_operator(engine=pool(client, per_worker=2), local=1) as checked:
        checked.run_until(
            lambda: {n for r in checked.recorder.records[-1:] for n in r.available} == {1, 2, 3, 4}
        )


def test_machines_wait_at_an_address_for_the_run(open_operator, client, monkeypatch):
    monkeypatch.setenv("CEC_MPI_KEY", "a key of twenty letters")
    address = f"127.0.0.1:{find_free_port()}"
    with machines(client, address, join={"retry": 200}), open_operator(listen=address) as checked:
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS)


def test_a_client_may_be_closed_before_its_operator(open_operator, cluster, machine_processes):
    client = Client(cluster)
    with open_operator(engine=client) as checked:
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS)
        client.close()
    wait_until(lambda: not machine_processes())


def test_the_keys_are_in_no_log_page_or_environment(open_operator, conn, cluster, client, capfd):
    with open_operator(accept=conn) as checked, machines(client, conn):
        checked.run_until(lambda: len(checked.event_machines("joined")) == WORKERS)
        file = read_connection_file(conn)
        this_process = psutil.Process()
        outputs = [
            client.get_worker_logs(),
            client.get_worker_logs(nanny=True),
            client.get_scheduler_logs(),
            client.get_events(),
            client.scheduler_info(),
            cluster.get_logs(),
            client.run_on_scheduler(
                lambda dask_scheduler: str(dask_scheduler.worker_plugins.keys())
            ),
        ]
        texts = [repr(output).encode() for output in outputs]
        assert any(b"cec_mpi-" in text for text in texts)  # the name of the plugin
        for process in (this_process, *this_process.children(recursive=True)):
            directory = Path(f"/proc/{process.pid}")
            texts += [(directory / name).read_bytes() for name in ("cmdline", "environ")]
        site = cluster.dashboard_link.removesuffix("/status")
        pages = ["info/main/workers.html", "info/main/logs.html", "json/identity.json", "metrics"]
        pages += [f"info/logs/{quote(worker, safe='')}.html" for worker in worker_pids(client)]
        texts += [urlopen(f"{site}/{page}").read() for page in pages]
    texts += [text.encode() for text in capfd.readouterr()]
    keys = file.server_key, file.secret_key, file.public_key
    assert not [key for key in keys for text in texts if key in text]


@pytest.fixture(scope="module")
def worker():
    with Client(processes=False, n_workers=1, dashboard_address=None) as client:
        yield client


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_worker": 0}, "per_worker 0: expected at least 1"),
        ({"keep": 0}, "keep 0: expected at least 1"),
        ({"join": {"chache": "x"}}, "join 'chache': expected one of cache, "),
        ({"join": {"cache": object()}}, "expected numbers, strings and paths"),
        ({"join": {"machines": 2}}, "join 'machines': expected one of"),
        ({"join": 3}, "join 3: expected keywords of cec_mpi.join"),
        ({"join": {"device": "gpu"}}, "device gpu: expected cpu"),
        ({"connection": "nowhere.json"}, "nowhere.json does not exist"),
        ({"client": 3}, "client 3: expected a Client"),
    ],
)
def test_invalid_options_are_refused_before_machines_start(
    open_operator, conn, worker, machine_processes, options, message
):
    with open_operator(accept=conn), pytest.raises(InputError, match=message):
        machines(**{"client": worker, "connection": conn, **options})
    assert not machine_processes()


def test_only_a_cluster_can_be_scaled(open_operator, conn, worker):
    with (
        open_operator(accept=conn),
        Client(worker.scheduler.address) as client,
        pytest.raises(InputError, match=r"keep 2: expected Client\(cluster\)"),
    ):
        machines(client, conn, keep=2)


@pytest.mark.parametrize("kind", ["number", "address", "cluster", "class"])
def test_other_objects_are_refused_as_engines(store, no_launcher, worker, kind):
    address, cluster = worker.scheduler.address, worker.cluster
    engine = {"number": 3, "address": address, "cluster": cluster, "class": Client}[kind]
    with pytest.raises(InputError, match="expected a Client"):
        cec_mpi.open_operator(store.path, engine=engine)


def test_a_closed_client_is_refused(store, no_launcher, worker):
    with Client(worker.scheduler.address) as client:
        pass
    with pytest.raises(InputError, match="is closed: expected a connected client"):
        cec_mpi.open_operator(store.path, engine=client)


def test_a_device_of_an_engine_must_be_an_option_of_its_pool(store, no_launcher, worker):
    with pytest.raises(InputError, match=r"device: .* expected join=\{'device'"):
        cec_mpi.open_operator(store.path, engine=worker, device="cuda")


def test_an_engine_is_refused_under_a_launcher(store, no_launcher, worker, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    with pytest.raises(InputError, match=r"engine: .* without a launcher"):
        cec_mpi.open_operator(store.path, engine=worker)
