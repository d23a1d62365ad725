"""What doctor says of facts: to a reader with a hundred ranks, and to programs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli.doctor.diagnosis import as_dict, format_report, list_findings
from cec_mpi.cli.doctor.facts import Facts, ShardCheck
from cec_mpi.runtime.processes.launcher import Continuity, Launcher
from cec_mpi.runtime.processes.places import Place
from cec_mpi.runtime.processes.start import Library
from cec_mpi.store import open_store

VERSIONS = {"cec_mpi": "0.1.0", "Python": "3.12.1", "NumPy": "2.1", "BLAS": "openblas 0.3"}
OPEN_MPI = Library("Open MPI v5.0.11", "Open MPI", 5)


def facts_of(nodes, ranks, *, cores=8, **others):
    """So many nodes with so many ranks each."""
    size = nodes * ranks
    places = [
        Place(f"node{rank // ranks + 1:02}", ranks, cores, cores, node=rank - rank % ranks)
        for rank in range(size)
    ]
    facts = Facts(
        Launcher("Open MPI", "Open MPI's mpirun", size, 0) if size > 1 else None,
        OPEN_MPI,
        "/usr/bin/mpirun (mpirun (Open MPI) 5.0.11)",
        None,
        [VERSIONS] * size,
        places,
        [place.threads for place in places],
        devices=[[]] * size,
    )
    return replace(facts, **others)


def texts(facts, kind):
    return [finding.text for finding in list_findings(facts) if finding.kind == kind]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    place = tmp_path_factory.mktemp("store")
    np.save(place / "X.npy", np.ones((40, 10), dtype=np.float32))
    cec_mpi.encode(place / "X.npy", place / "S", 3, 2, dtype="float32")
    return open_store(place / "S").manifest


def test_a_hundred_ranks_on_twenty_nodes_are_a_line_for_each_node():
    told = format_report(facts_of(20, 5)).splitlines()
    table = [line for line in told if line.startswith("node")]
    assert len(table) == 21
    assert table[0].split() == ["node", "ranks", "cores", "NUMA", "threads", "GPUs"]
    assert table[2].split() == ["node02", "5", "8", "1", "1", "0"]
    assert max(map(len, told)) <= 130
    assert len(told) < 40


def test_what_differs_on_some_of_a_hundred_ranks_is_still_a_line_each():
    facts = facts_of(20, 5, cores=3)
    versions = [{**VERSIONS, "NumPy": "2.2"} if rank >= 50 else VERSIONS for rank in range(100)]
    facts = replace(facts, versions=versions)
    found = texts(facts, "warning")
    assert [text.split()[0] for text in found] == ["NumPy", "oversubscribed:"]
    assert max(map(len, found)) < 250


def test_a_store_says_how_many_ranks_it_needs(manifest):
    enough, few = (facts_of(ranks, 1, manifest=manifest, store="S") for ranks in (4, 3))
    for facts in (enough, few):
        assert "store 40 x 10 float32 on 3 machines " in " ".join(format_report(facts).split())
    assert texts(enough, "error") == []
    assert texts(few, "error")[0].startswith("3 ranks were started: the store needs 4")


def test_a_process_alone_is_told_how_to_go_on(manifest):
    told = format_report(facts_of(1, 1, manifest=manifest, store="S"))
    assert told.endswith(
        "This checked one process. To check several, run mpirun -n 4 cec-mpi doctor S"
    )
    assert "No problems were found." in told


def test_shards_that_are_not_there_and_shards_that_are_not_seen(manifest):
    seen = [
        ShardCheck(1, "node02", "/data/S/shard-0001.npy"),
        ShardCheck(2, "node03", "/data/S/shard-0002.npy", "missing", only_on_master=True),
        ShardCheck(3, "node04", "/data/S/shard-0003.npy", "12 bytes, expected 900"),
    ]
    found = texts(facts_of(4, 1, manifest=manifest, store="/data/S", shard_checks=seen), "error")
    assert found[0].startswith("machine 2 on node03 cannot see the shard: only rank 0 on ")
    assert found[1] == (
        "machine 3 on node04: /data/S/shard-0003.npy: 12 bytes, expected 900; cec-mpi repair "
        "/data/S rebuilds it from the other shards"
    )


def test_an_mpirun_of_another_mpi_on_path():
    (told,) = texts(facts_of(1, 1, mpirun="/usr/bin/mpirun (HYDRA build details:)"), "warning")
    assert told == "mpirun on PATH does not belong to Open MPI v5.0.11: use the mpirun of this MPI"


@pytest.mark.parametrize(("kinds", "said"), [(("none", "pmi2"), 1), (("none", "pmix"), 0)])
def test_a_slurm_that_cannot_start_this_mpi(kinds, said):
    facts = facts_of(1, 1, srun=kinds)
    assert len(texts(facts, "advice")) == said
    assert f"srun --mpi  {', '.join(kinds)}\n" in format_report(facts)


def test_a_slurm_that_cannot_load_what_it_lists():
    facts = facts_of(1, 1, srun=("none", "pmix"), srun_problem="libpmix.so is missing")
    (told,) = texts(facts, "warning")
    assert told.startswith("this Slurm lists srun --mpi=pmix, which Open MPI v5.0.11 needs, but ")
    assert told.endswith("cannot load it: libpmix.so is missing")
    assert as_dict(facts)["srun_problem"] == "libpmix.so is missing"


@pytest.mark.parametrize(
    ("continuity", "said"),
    [
        (Continuity(True), "if a process is killed, the others continue"),
        (
            Continuity(False, "use srun"),
            "if a process is killed, the launcher ends all processes: use srun",
        ),
        (None, None),
    ],
)
def test_what_happens_to_the_others_when_a_process_is_killed(continuity, said):
    facts = facts_of(2, 1, continuity=continuity)
    told = [line for line in format_report(facts).splitlines() if line.startswith("losses ")]
    assert told == ([f"losses    {said}"] if said else [])
    expected = {"continues": continuity.continues, "remedy": continuity.remedy} if said else None
    assert as_dict(facts)["continuity"] == expected


def test_a_blas_that_cannot_be_limited():
    (told,) = texts(facts_of(1, 1, versions=[{**VERSIONS, "BLAS": "unknown"}]), "warning")
    assert told.endswith("set OMP_NUM_THREADS=8")


def test_threads_that_a_run_would_be_told():
    facts = facts_of(2, 3, threads=[4] * 6)
    (told,) = texts(facts, "warning")
    assert told.startswith("oversubscribed: more threads than cores on node02 (3 machines of 4 ")
    assert "node02 3 8 1 4" in " ".join(format_report(facts).split())
    assert [rank["threads"] for rank in as_dict(facts)["ranks"]] == [4] * 6


def test_all_of_it_as_json(manifest):
    seen = [ShardCheck(n, "node01", f"/S/shard-000{n}.npy") for n in (1, 2, 3)]
    facts = facts_of(2, 2, manifest=manifest, store="S", shard_checks=seen)
    found = json.loads(json.dumps(as_dict(facts)))
    assert [rank["host"] for rank in found["ranks"]] == ["node01", "node01", "node02", "node02"]
    assert [shard["machine"] for shard in found["store"]["shards"]] == [1, 2, 3]
    alone = as_dict(facts_of(1, 1))
    assert (alone["store"], alone["launcher"]) == (None, None)
