"""Runs on several hosts: where machines start, and where they read their shards."""

import shutil

import pytest

pytestmark = pytest.mark.needs("hosts", "mpi-across-hosts")

NODES = {1: "node1", 2: "node2", 3: "node3"}


def test_machines_are_placed_according_to_the_host_file(multiply, inputs):
    run = multiply("--map", "-q", "--speeds", "node1=2,node2=1,node3=3,elsewhere=1")
    assert run.hosts_of_machines() == NODES
    assert run.header["speeds"] == [2, 1, 3]
    assert run.steps[0]["rows"] == [200, 100, 300]
    lines = [line.split() for line in run.result.stdout.splitlines()]
    assert lines[0] == ["machine", "rank", "host", "cores", "threads", "shard"]
    assert lines[1][:3] == ["master", "0", "node1"]
    assert [(int(m), int(rank), host) for m, rank, host, *_ in lines[2:]] == [
        (n, n, host) for n, host in NODES.items()
    ]
    shards = [str(inputs.store / f"shard-{n:04d}.npy") for n in NODES]
    assert [line[-1] for line in lines[2:]] == shards


@pytest.mark.any_mpi
def test_each_shard_is_copied_to_the_host_of_its_machine(hosts, multiply):
    run = multiply("--cache", hosts.local / "of-{host}")
    assert run.header["machines_with_copies"] == list(NODES)
    for n, host in NODES.items():
        (found,) = hosts.directory.glob(f"*/local/*/*/*/shard-{n:04d}.npy")
        path = found.relative_to(hosts.directory / host / "local" / f"of-{host}")
        assert run.header["shard_files"][n] == str(hosts.local / f"of-{host}" / path)


@pytest.fixture
def host_stores(hosts, inputs):
    """A store on each host, with only the shards of the host's machines."""
    for n, host in NODES.items():
        directory = hosts.directory / host / "local" / f"data-{host}"
        directory.mkdir(exist_ok=True)
        for file in inputs.store.iterdir():
            if not file.name.startswith("shard-") or file.name == f"shard-{n:04d}.npy":
                shutil.copy(file, directory)
    yield hosts.local / "data-{host}"
    for host in hosts.names:
        shutil.rmtree(hosts.directory / host / "local" / f"data-{host}")


@pytest.mark.any_mpi
def test_each_host_can_have_its_own_store(hosts, multiply, host_stores):
    run = multiply(store=host_stores)
    assert run.header["machines_with_copies"] == []
    assert run.header["shard_files"][3] == str(hosts.local / "data-node3" / "shard-0003.npy")
