"""Findings from facts: what was seen of ranks, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cec_mpi.cli.doctor.advice import advise_binding, find_version_differences
from cec_mpi.runtime.processes.launcher import Launcher
from cec_mpi.runtime.processes.places import (
    Place,
    core_numbers,
    count_domains,
    find_oversubscription,
    missing_shards_message,
    rank_count_problem,
)
from cec_mpi.runtime.processes.start import version_mismatch_message
from cec_mpi.text import join_names


def nodes(*ranks, cores=4, own=None, domains=1, own_domains=None):
    """Places of so many ranks on each of the nodes n1, n2, ... of so many cores.

    Where each is bound to its own cores, their nodes are those that they have together.
    """
    return [
        Place(
            f"n{number}",
            count,
            cores if own is None else min(cores, own * count),
            own or cores,
            domains,
            own_domains or domains,
            sum(ranks[: number - 1]),
            cores,
        )
        for number, count in enumerate(ranks, start=1)
        for _ in range(count)
    ]


def launched(implementation):
    return Launcher(implementation, implementation, 2, 0)


def crowds(places, threads=None, implementation="Open MPI"):
    threads = [threads or place.threads for place in places]
    found = find_oversubscription(places, threads, launched(implementation))
    assert {finding.kind for finding in found} <= {"warning"}
    return [finding.text for finding in found]


def test_a_core_for_each_machine_is_enough_since_the_master_waits():
    assert crowds(nodes(5)) == []
    assert crowds(nodes(1, 4, 4)) == []


def test_more_ranks_than_cores():
    assert crowds(nodes(7, cores=2)) == [
        "oversubscribed: more machines than cores on n1 (6 machines on 2 cores); this is fine "
        "for a test, but measured speeds are unreliable: use more nodes, or fewer machines on each "
        "node"
    ]


def test_a_hundred_ranks_on_twenty_nodes_are_one_message():
    (message,) = crowds(nodes(*[5] * 20))
    assert (
        "more machines than cores on n2, n3, n4 and 16 more (5 machines on 4 cores on n2)"
        in message
    )
    assert len(message) < 250


def test_more_threads_than_cores():
    assert crowds(nodes(3), 2) == []
    (message,) = crowds(nodes(4), 2)
    assert "more threads than cores on n1 (3 machines of 2 threads on 4 cores)" in message
    assert "fewer --threads" in message


def test_more_threads_than_a_rank_is_bound_to():
    (message,) = crowds(nodes(2, own=1), 4)
    assert "more threads than cores on n1 (4 threads bound to 1 core)" in message
    (message,) = crowds(nodes(2, own=1), 5)
    assert "more threads than cores on n1 (1 machine of 5 threads on 2 cores)" in message
    assert crowds(nodes(2, own=1)) == []  # by default each has as many as it may use


def test_nodes_of_one_name_are_two_nodes():
    two = [replace(place, host="localhost") for place in nodes(3, 3, cores=3)]
    assert crowds(two) == []


def test_both_are_warnings():
    assert len(crowds(nodes(7), 2)) == 2


def binding(places, implementation="Open MPI"):
    found = advise_binding(places, launched(implementation))
    assert {finding.kind for finding in found} <= {"advice"}
    return [finding.text for finding in found]


def test_ranks_that_are_bound_to_one_core_and_leave_others_idle():
    (message,) = binding(nodes(2, own=1))
    assert message == (
        "ranks are bound to one core, and other cores are idle on n1 (2 ranks on 2 cores "
        "of 4): start them with mpirun --bind-to none"
    )
    assert binding(nodes(3, own=1)) == []
    assert binding(nodes(2, cores=2, own=1)) == []  # as where the cpuset has no more


def test_fewer_machines_than_numa_domains():
    (message,) = binding(nodes(1, 1, 1, cores=64, domains=2))
    assert message.startswith("machines spread over NUMA domains on n2 and n3 (1 machine, 2 ")


def test_a_machine_without_numa_needs_no_advice():
    assert binding(nodes(5)) == []
    assert advise_binding(nodes(1), None) == []


SAME = ("0.1.0", "15cd45ca", "/opt/cec_mpi")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (SAME, ""),
        (("0.1.0", "15cd45ca", "/home/cec_mpi"), ""),
        (
            ("0.2.0", "17305258", "/opt/cec_mpi"),
            "0.1.0 in /opt/cec_mpi on n1; 0.2.0 in /opt/cec_mpi on n2 and n3; ",
        ),
        (
            ("0.1.0", "17305258", "/opt/cec_mpi"),
            "0.1.0 (files 15cd45ca) in /opt/cec_mpi on n1; 0.1.0 (files 17305258) in /opt/",
        ),
        (("0.3.0", "0", "/opt", "what a later version adds"), "0.3.0 in /opt on n2 and n3"),
    ],
)
def test_different_versions_of_the_package(other, message):
    found = version_mismatch_message([("n1", *SAME), ("n1", *SAME), ("n2", *other), ("n3", *other)])
    assert message in found
    assert bool(message) == bool(found)


def test_different_versions_of_what_it_needs():
    versions = [{"NumPy": "2.1", "SciPy": "1.14"}, {"NumPy": "2.2", "SciPy": "1.14"}]
    (found,) = find_version_differences(versions, ["n1", "n2"])
    assert found.text == "NumPy differs between ranks: 2.1 on n1; 2.2 on n2"
    assert found.kind == "warning"


@pytest.mark.parametrize(
    ("size", "machines", "message"),
    [
        (7, 6, ""),
        (1, 6, "1 rank was started: the store needs 7, one for the master and one for each of "),
        (9, 6, "9 ranks were started: the store needs 7"),
        (4, 4, "needs 5, one for the master and one for each of 4 of its 6 machines (mpirun -n"),
    ],
)
def test_too_few_or_too_many_ranks(size, machines, message):
    found = rank_count_problem(size, range(1, machines + 1), 6)
    assert message in found
    assert bool(message) == bool(found)


# What each launcher is started with: to bind to no core, to NUMA domains, and seven ranks.
OPTIONS = {
    "Open MPI": ("mpirun --bind-to none", "mpirun --map-by numa --bind-to numa", "mpirun -n 7"),
    "MPICH": ("mpiexec -bind-to none", "mpiexec -bind-to numa", "mpiexec -n 7"),
    "Intel MPI": ("I_MPI_PIN=off", "I_MPI_PIN_DOMAIN=numa", "mpirun -n 7"),
    "srun": ("srun --cpu-bind=none", "srun --cpu-bind=ldoms", "srun -n 7"),
    "a launcher": ("no binding", "4 domains): binding to NUMA domains keeps", ""),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_advice_names_the_options_of_the_launcher(name):
    unbound, numa, ranks = OPTIONS[name]
    (text,) = crowds(nodes(2, own=1), 4, name)
    assert text.endswith(f"use fewer --threads, or start with {unbound}")
    (text,) = binding(nodes(2, own=1), name)
    assert text.endswith(f": start them with {unbound}")
    (text,) = binding(nodes(5, cores=64, domains=4), name)
    assert text.startswith("machines may move between NUMA domains on n1 (4 machines, 4 domains): ")
    assert numa in text
    assert binding(nodes(5, cores=64, domains=4, own_domains=1), name) == []
    text = rank_count_problem(2, range(1, 7), 6, launcher=launched(name))
    assert text.endswith(f" machines ({ranks})" if ranks else "one for each of its 6 machines")
    assert rank_count_problem(2, range(1, 7), 6).endswith(" machines (mpirun -n 7)")


def test_shards_that_are_not_seen():
    one = missing_shards_message("/data/store/shard-0003.npy", "n1", {3: "n2"})
    assert one.startswith(
        "machine 3 on n2 cannot see the shard: only rank 0 on n1 sees /data/store/shard-0003.npy"
    )
    assert "shared file system" in one
    many = missing_shards_message(
        "/s", "n1", {number: f"n{number // 5}" for number in range(5, 105)}
    )
    assert many.startswith("machines 5, 6, 7 and 97 more on n1, n2, n3 and 17 more cannot see ")


def test_names_in_a_list():
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c", "d"]) == "a, b, c and d"
    assert join_names("abcde") == "a, b, c and 2 more"


@pytest.fixture
def system(tmp_path):
    """Two domains of two cores with two threads each, as Linux numbers them."""
    for number in range(8):
        place = tmp_path / f"cpu/cpu{number}/topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    for number, processors in enumerate(["0-1,4-5", "2-3,6-7", ""]):
        (tmp_path / f"node/node{number}").mkdir(parents=True)
        (tmp_path / f"node/node{number}/cpulist").write_text(f"{processors}\n")
    return tmp_path


def test_hardware_threads_of_one_core_are_one_core(system):
    assert core_numbers({0, 1, 4, 5}, system) == (0, 1)
    assert core_numbers(set(range(8)), system) == (0, 1, 2, 3)
    assert core_numbers({8, 9}, system) == (8, 9)


def test_domains_of_processors(system, tmp_path):
    assert count_domains({0, 4}, system) == 1
    assert count_domains({0, 7}, system) == 2
    assert count_domains({0, 7}, tmp_path / "nothing") == 1
