"""Cores of processes, and findings about them that doctor and a start report."""

from __future__ import annotations

import os
from dataclasses import replace
from unittest.mock import Mock

import pytest
from threadpoolctl import threadpool_info

from cec_mpi.cli.doctor.advice import advise_binding, find_version_differences
from cec_mpi.runtime.processes.launcher import Launcher
from cec_mpi.runtime.processes.resources import (
    ProcessInfo,
    add_node_totals,
    core_numbers,
    count_domains,
    find_oversubscription,
    limit_threads,
    missing_shards_message,
    rank_count_problem,
    ranks_by_node,
    unbound_processors,
)
from cec_mpi.runtime.processes.start import version_mismatch_message

# --- resources ----------------------------------------------------------------------------


def make_process(network="a", own_cores=2, cores=8, first_core=0, group=0):
    """Return the information that a process with these cores detects."""
    numbers = tuple(range(first_core, first_core + own_cores))
    process = ProcessInfo(
        "node", 1, own_cores, own_cores, unbound_cores=cores, network=network, core_numbers=numbers
    )
    return replace(process, group=group)


@pytest.mark.parametrize(
    ("processes", "cores", "threads"),
    [
        ([make_process(own_cores=8)] * 3, 8, 2),
        ([make_process(first_core=2 * k) for k in range(3)], 6, 2),  # bound to different cores
        ([make_process()] * 3, 2, 1),  # bound to the same cores
        ([make_process(cores=2)] * 5, 2, 1),
        ([make_process(own_cores=4, cores=0)], 4, 4),  # unknown
    ],
)
def test_processes_of_a_node_share_its_cores(processes, cores, threads):
    combined = add_node_totals(processes)
    assert {process.ranks for process in combined} == {len(processes)}
    assert {(process.cores, process.threads) for process in combined} == {(cores, threads)}


def test_a_node_is_a_network_or_a_control_group_with_a_quota():
    processes = add_node_totals([make_process(network) for network in "abbac"])
    assert [process.node for process in processes] == [0, 1, 1, 0, 4]
    assert [process.ranks for process in processes] == [2, 2, 2, 2, 1]
    assert list(ranks_by_node(processes).values()) == [[0, 3], [1, 2], [4]]
    processes = add_node_totals([make_process(cores=2, group=group) for group in (7, 7, 9)])
    assert [(process.ranks, process.threads) for process in processes] == [(2, 1), (2, 1), (1, 2)]


def test_finding_unbound_processors_leaves_the_process_bound(monkeypatch):
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert unbound_processors() >= before
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
    monkeypatch.setattr(os, "sched_setaffinity", Mock(side_effect=PermissionError))
    assert unbound_processors() == before


def test_blas_threads_are_limited():
    with limit_threads(1):
        assert {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"} == {1}


@pytest.fixture
def system(tmp_path):
    """Two NUMA domains of two cores with two hardware threads each, as Linux numbers them."""
    for number in range(8):
        topology = tmp_path / f"cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    for number, processors in enumerate(["0-1,4-5", "2-3,6-7", ""]):
        (tmp_path / f"node/node{number}").mkdir(parents=True)
        (tmp_path / f"node/node{number}/cpulist").write_text(f"{processors}\n")
    return tmp_path


def test_cores_and_domains_of_processors_are_found(system, tmp_path):
    assert core_numbers({0, 1, 4, 5}, system) == (0, 1)
    assert core_numbers(set(range(8)), system) == (0, 1, 2, 3)
    assert core_numbers({8, 9}, system) == (8, 9)
    assert count_domains({0, 4}, system) == 1
    assert count_domains({0, 7}, system) == 2
    assert count_domains({0, 7}, tmp_path / "nothing") == 1


# --- findings -----------------------------------------------------------------------------


def make_nodes(*ranks, cores=4, own_cores=None, domains=1, own_domains=None):
    """Return the processes of ranks on nodes n1, n2, ..., each bound to `own_cores` cores."""
    return [
        ProcessInfo(
            f"n{number}",
            count,
            cores if own_cores is None else min(cores, own_cores * count),
            own_cores or cores,
            domains,
            own_domains or domains,
            sum(ranks[: number - 1]),
            cores,
        )
        for number, count in enumerate(ranks, start=1)
        for _ in range(count)
    ]


def make_launcher(implementation):
    return Launcher(implementation, implementation, 2, 0)


def find_warnings(processes, threads=None, implementation="Open MPI"):
    threads = [threads or process.threads for process in processes]
    findings = find_oversubscription(processes, threads, make_launcher(implementation))
    assert {finding.severity for finding in findings} <= {"warning"}
    return [finding.text for finding in findings]


def find_advice(processes, implementation="Open MPI"):
    findings = advise_binding(processes, make_launcher(implementation))
    assert {finding.severity for finding in findings} <= {"advice"}
    return [finding.text for finding in findings]


@pytest.mark.parametrize(
    ("processes", "threads", "messages"),
    [
        (make_nodes(5), None, []),  # the master needs no core
        (make_nodes(1, 4, 4), None, []),
        (make_nodes(3), 2, []),
        (make_nodes(2, own_cores=1), None, []),
        ([replace(p, host_name="localhost") for p in make_nodes(3, 3, cores=3)], None, []),
        (make_nodes(7), 2, ["more machines than cores", "more threads than cores"]),
        (
            make_nodes(7, cores=2),
            None,
            [
                "oversubscribed: more machines than cores on n1 (6 machines on 2 cores); this is "
                "fine for a test, but measured speeds are unreliable: use more nodes, or fewer "
                "machines on each node"
            ],
        ),
        (
            make_nodes(*[5] * 20),
            None,
            ["more machines than cores on n2, n3, n4 and 16 more (5 machines on 4 cores on n2)"],
        ),
        (make_nodes(4), 2, ["more threads than cores on n1 (3 machines of 2 threads on 4 cores)"]),
        (
            make_nodes(2, own_cores=1),
            4,
            ["more threads than cores on n1 (4 threads bound to 1 core)"],
        ),
        (
            make_nodes(2, own_cores=1),
            5,
            ["more threads than cores on n1 (1 machine of 5 threads on 2 cores)"],
        ),
    ],
)
def test_oversubscription_is_reported(processes, threads, messages):
    for text, message in zip(find_warnings(processes, threads), messages, strict=True):
        assert message in text
        assert len(text) < 250


def test_advice_on_binding():
    (message,) = find_advice(make_nodes(2, own_cores=1))
    assert message == (
        "ranks are bound to one core, and other cores are idle on n1 (2 ranks on 2 cores "
        "of 4): start them with mpirun --bind-to none"
    )
    (message,) = find_advice(make_nodes(1, 1, 1, cores=64, domains=2))
    assert message.startswith("machines spread over NUMA domains on n2 and n3 (1 machine, 2 ")
    for processes in make_nodes(3, own_cores=1), make_nodes(2, cores=2, own_cores=1), make_nodes(5):
        assert find_advice(processes) == []
    assert advise_binding(make_nodes(1), None) == []


# Options of each launcher: no binding, binding to NUMA domains, seven ranks.
OPTIONS = {
    "Open MPI": ("mpirun --bind-to none", "mpirun --map-by numa --bind-to numa", "mpirun -n 7"),
    "MPICH": ("mpiexec -bind-to none", "mpiexec -bind-to numa", "mpiexec -n 7"),
    "Intel MPI": ("I_MPI_PIN=off", "I_MPI_PIN_DOMAIN=numa", "mpirun -n 7"),
    "srun": ("srun --cpu-bind=none", "srun --cpu-bind=ldoms", "srun -n 7"),
    "a launcher": ("no binding", "4 domains): binding to NUMA domains keeps", ""),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_remedies_name_the_options_of_the_launcher(name):
    unbound, numa, ranks = OPTIONS[name]
    (text,) = find_warnings(make_nodes(2, own_cores=1), 4, name)
    assert text.endswith(f"use fewer --threads, or start with {unbound}")
    (text,) = find_advice(make_nodes(2, own_cores=1), name)
    assert text.endswith(f": start them with {unbound}")
    (text,) = find_advice(make_nodes(5, cores=64, domains=4), name)
    assert text.startswith("machines may move between NUMA domains on n1 (4 machines, 4 domains): ")
    assert numa in text
    assert find_advice(make_nodes(5, cores=64, domains=4, own_domains=1), name) == []
    text = rank_count_problem(2, range(1, 7), 6, launcher=make_launcher(name))
    assert text.endswith(f" machines ({ranks})" if ranks else "one for each of its 6 machines")


@pytest.mark.parametrize(
    ("size", "machines", "message"),
    [
        (7, 6, ""),
        (1, 6, "1 rank was started: the store needs 7, one for the master and one for each of "),
        (9, 6, "9 ranks were started: the store needs 7"),
        (4, 4, "needs 5, one for the master and one for each of 4 of its 6 machines (mpirun -n"),
    ],
)
def test_a_wrong_number_of_ranks_is_explained(size, machines, message):
    problem = rank_count_problem(size, range(1, machines + 1), 6)
    assert message in problem
    assert bool(message) == bool(problem)


def test_machines_that_cannot_see_their_shards_are_named():
    message = missing_shards_message("/data/store/shard-0003.npy", "n1", {3: "n2"})
    assert message.startswith(
        "machine 3 on n2 cannot see the shard: only rank 0 on n1 sees /data/store/shard-0003.npy"
    )
    message = missing_shards_message(
        "/s", "n1", {number: f"n{number // 5}" for number in range(5, 105)}
    )
    assert message.startswith("machines 5, 6, 7 and 97 more on n1, n2, n3 and 17 more cannot see ")


# --- versions -----------------------------------------------------------------------------

PACKAGE = ("0.1.0", "15cd45ca", "/opt/cec_mpi")


@pytest.mark.parametrize(
    ("other_package", "message"),
    [
        (("0.1.0", "15cd45ca", "/home/cec_mpi"), ""),
        (
            ("0.2.0", "17305258", "/opt/cec_mpi"),
            "0.1.0 in /opt/cec_mpi on n1; 0.2.0 in /opt/cec_mpi on n2 and n3; ",
        ),
        (
            ("0.1.0", "17305258", "/opt/cec_mpi"),
            "0.1.0 (files 15cd45ca) in /opt/cec_mpi on n1; 0.1.0 (files 17305258) in /opt/",
        ),
        (("0.3.0", "0", "/opt", "field of a later version"), "0.3.0 in /opt on n2 and n3"),
    ],
)
def test_different_versions_of_the_package_are_reported(other_package, message):
    packages = [("n1", *PACKAGE), ("n1", *PACKAGE), ("n2", *other_package), ("n3", *other_package)]
    problem = version_mismatch_message(packages)
    assert message in problem
    assert bool(message) == bool(problem)


def test_different_versions_of_libraries_are_reported():
    versions = [{"NumPy": "2.1", "SciPy": "1.14"}, {"NumPy": "2.2", "SciPy": "1.14"}]
    (finding,) = find_version_differences(versions, ["n1", "n2"])
    assert finding.text == "NumPy differs between ranks: 2.1 on n1; 2.2 on n2"
    assert finding.severity == "warning"
