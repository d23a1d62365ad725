"""The report and findings of doctor, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli.doctor.diagnosis import as_dict, format_report, list_findings
from cec_mpi.cli.doctor.facts import Facts, ShardCheck
from cec_mpi.runtime.processes.launcher import Launcher, LossPolicy
from cec_mpi.runtime.processes.resources import ProcessInfo
from cec_mpi.runtime.processes.start import Library
from cec_mpi.store import open_store

VERSIONS = {"cec_mpi": "0.1.0", "Python": "3.12.1", "NumPy": "2.1", "BLAS": "openblas 0.3"}
OPEN_MPI = Library("Open MPI v5.0.11", "Open MPI", 5)


def make_facts(nodes, ranks, *, cores=8, **changes):
    """Return the facts of nodes with the same number of ranks."""
    size = nodes * ranks
    processes = [
        ProcessInfo(f"node{rank // ranks + 1:02}", ranks, cores, cores, node=rank - rank % ranks)
        for rank in range(size)
    ]
    facts = Facts(
        Launcher("Open MPI", "Open MPI's mpirun", size, 0) if size > 1 else None,
        OPEN_MPI,
        "/usr/bin/mpirun (mpirun (Open MPI) 5.0.11)",
        None,
        [VERSIONS] * size,
        processes,
        [process.threads for process in processes],
        devices=[[]] * size,
    )
    return replace(facts, **changes)


def find_texts(facts, severity):
    return [finding.text for finding in list_findings(facts) if finding.severity == severity]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    directory = tmp_path_factory.mktemp("store")
    np.save(directory / "X.npy", np.ones((40, 10), dtype=np.float32))
    cec_mpi.encode(directory / "X.npy", directory / "S", 3, 2, dtype="float32")
    return open_store(directory / "S").manifest


def test_the_report_has_a_line_for_each_node():
    lines = format_report(make_facts(20, 5)).splitlines()
    table = [line for line in lines if line.startswith("node")]
    assert len(table) == 21
    assert table[0].split() == ["node", "ranks", "cores", "NUMA", "threads", "GPUs"]
    assert table[2].split() == ["node02", "5", "8", "1", "1", "0"]
    assert max(map(len, lines)) <= 130
    assert len(lines) < 40


def test_each_difference_between_ranks_is_one_line():
    facts = make_facts(20, 5, cores=3)
    versions = [{**VERSIONS, "NumPy": "2.2"} if rank >= 50 else VERSIONS for rank in range(100)]
    facts = replace(facts, versions=versions)
    found = find_texts(facts, "warning")
    assert [text.split()[0] for text in found] == ["NumPy", "oversubscribed:"]
    assert max(map(len, found)) < 250


def test_doctor_names_the_number_of_ranks_of_a_store(manifest):
    enough, few = (make_facts(ranks, 1, manifest=manifest, store="S") for ranks in (4, 3))
    for facts in (enough, few):
        assert "store 40 x 10 float32 on 3 machines " in " ".join(format_report(facts).split())
    assert find_texts(enough, "error") == []
    assert find_texts(few, "error")[0].startswith("3 ranks were started: the store needs 4")


def test_a_single_process_names_the_command_for_several(manifest):
    report = format_report(make_facts(1, 1, manifest=manifest, store="S"))
    assert report.endswith(
        "This checked one process. To check several, run mpirun -n 4 cec-mpi doctor S"
    )
    assert "No problems were found." in report


def test_missing_and_invisible_shards_are_errors(manifest):
    checks = [
        ShardCheck(1, "node02", "/data/S/shard-0001.npy"),
        ShardCheck(2, "node03", "/data/S/shard-0002.npy", "missing", only_on_master=True),
        ShardCheck(3, "node04", "/data/S/shard-0003.npy", "12 bytes, expected 900"),
    ]
    facts = make_facts(4, 1, manifest=manifest, store="/data/S", shard_checks=checks)
    found = find_texts(facts, "error")
    assert found[0].startswith("machine 2 on node03 cannot see the shard: only rank 0 on ")
    assert found[1] == (
        "machine 3 on node04: /data/S/shard-0003.npy: 12 bytes, expected 900; cec-mpi repair "
        "/data/S rebuilds it from the other shards"
    )


@pytest.mark.parametrize(
    ("facts", "severity", "text"),
    [
        (
            make_facts(1, 1, mpirun="/usr/bin/mpirun (HYDRA build details:)"),
            "warning",
            "mpirun on PATH does not belong to Open MPI v5.0.11: use the mpirun of this MPI",
        ),
        (
            make_facts(1, 1, srun=("none", "pmi2")),
            "advice",
            "this Slurm has no srun --mpi=pmix, which Open MPI v5.0.11 needs",
        ),
        (
            make_facts(1, 1, srun=("none", "pmix"), srun_problem="libpmix.so is missing"),
            "warning",
            "this Slurm lists srun --mpi=pmix, which Open MPI v5.0.11 needs, but cannot load it: "
            "libpmix.so is missing",
        ),
        (
            make_facts(1, 1, versions=[{**VERSIONS, "BLAS": "unknown"}]),
            "warning",
            "cec-mpi cannot limit the threads of NumPy's BLAS: set OMP_NUM_THREADS=8",
        ),
        (
            make_facts(2, 3, threads=[4] * 6),
            "warning",
            "oversubscribed: more threads than cores on node02 (3 machines of 4 ",
        ),
    ],
)
def test_a_finding_explains_what_to_do(facts, severity, text):
    (finding,) = [finding for finding in list_findings(facts) if finding.severity == severity]
    assert finding.text.startswith(text)
    assert f"{severity}: {finding.text}" in format_report(facts)


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        ({"srun": ("none", "pmix")}, "srun --mpi  none, pmix"),
        (
            {"loss_policy": LossPolicy(True)},
            "losses    if a process is killed, the others continue",
        ),
        (
            {"loss_policy": LossPolicy(False, "use srun")},
            "losses    if a process is killed, the launcher ends all processes: use srun",
        ),
    ],
)
def test_a_fact_is_a_line(fact, line):
    facts = make_facts(2, 1, **fact)
    assert line in format_report(facts).splitlines()
    ((name, value),) = fact.items()
    found = json.loads(json.dumps(as_dict(facts)))[name]
    assert found == (vars(value) if name == "loss_policy" else list(value))


def test_facts_can_be_written_as_json(manifest):
    checks = [ShardCheck(n, "node01", f"/S/shard-000{n}.npy") for n in (1, 2, 3)]
    facts = make_facts(2, 2, manifest=manifest, store="S", shard_checks=checks)
    found = json.loads(json.dumps(as_dict(facts)))
    assert [rank["host"] for rank in found["ranks"]] == ["node01", "node01", "node02", "node02"]
    assert [shard["machine"] for shard in found["store"]["shards"]] == [1, 2, 3]
    one_process = as_dict(make_facts(1, 1))
    assert (one_process["store"], one_process["launcher"]) == (None, None)
