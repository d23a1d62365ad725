"""Hostfiles, from names of hosts and from what Slurm says of an allocation."""

from __future__ import annotations

import pytest

from cec_mpi.availability.nodelist import expand_nodelist
from cec_mpi.cli import main
from cec_mpi.cluster.hostfile import FORMATS, Host, hosts_of_job
from cec_mpi.errors import InputError
from helpers import ROOT

HOSTFILES = ROOT / "hostfiles"


@pytest.fixture
def hostfile(capsys, monkeypatch):
    """Run ``cec-mpi hostfile``: its exit code, standard output and standard error."""

    def run(*words, **variables):
        for name in ("SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return main(["hostfile", *words]), *capsys.readouterr()

    return run


@pytest.mark.parametrize("format", FORMATS)
def test_the_examples_are_what_the_command_writes(hostfile, format):
    done = hostfile("--format", format, "node01:3", "node02:2", "node03:2")
    assert done == (0, (HOSTFILES / f"{format}.txt").read_text(), "")
    assert {path.stem for path in HOSTFILES.iterdir()} == set(FORMATS)


def test_the_hosts_of_a_job(hostfile):
    variables = {"SLURM_JOB_NODELIST": "n[1-3],login", "SLURM_TASKS_PER_NODE": "2(x3),1"}
    assert hosts_of_job(variables) == [
        Host("n1", 2),
        Host("n2", 2),
        Host("n3", 2),
        Host("login", 1),
    ]
    code, out, _ = hostfile("--format", "mpich", "--from-slurm", **variables)
    assert code == 0
    assert out.endswith("\nn1:2\nn2:2\nn3:2\nlogin:1\n")


def test_the_hosts_of_a_job_of_several_components():
    """Whose first component alone has the variables of other jobs in its batch script."""
    variables = {
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_TASKS_PER_NODE": "1",
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_ID_HET_GROUP_0": "17",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
        "SLURM_TASKS_PER_NODE_HET_GROUP_0": "1",
        "SLURM_JOB_ID_HET_GROUP_1": "18",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
        "SLURM_TASKS_PER_NODE_HET_GROUP_1": "4(x2)",
    }
    assert hosts_of_job(variables) == [Host("n1", 1), Host("n2", 4), Host("n3", 4)]
    inside = {**variables, "SLURM_JOB_ID": "20", "SLURM_JOB_NODELIST": "n9"}
    assert hosts_of_job(inside) == [Host("n9", 1)]
    del variables["SLURM_TASKS_PER_NODE_HET_GROUP_1"]
    with pytest.raises(InputError, match="SLURM_TASKS_PER_NODE_HET_GROUP_1 is not set"):
        hosts_of_job(variables)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a-1.example.org,b", ["a-1.example.org", "b"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[09-11]", ["n09", "n10", "n11"]),
        ("n[1,3-4]x,m[2]", ["n1x", "n3x", "n4x", "m2"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_nodes_that_slurm_writes_in_short(text, names):
    assert expand_nodelist(text) == names


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], "at least one HOST:RANKS"),
        (["a"], "'a': expected HOST:RANKS"),
        (["a:"], "HOST:RANKS"),
        (["a:0"], "HOST:RANKS"),
        ([":3"], "HOST:RANKS"),
        (["a b:3"], "HOST:RANKS"),
        (["a:1", "b:2", "a:1"], "host a is listed twice"),
        (["a:1", "--from-slurm"], "--from-slurm"),
        (["--from-slurm"], "SLURM_JOB_NODELIST is not set"),
    ],
)
def test_bad_input_gets_one_message(hostfile, words, names):
    code, out, err = hostfile("--format", "openmpi", *words)
    assert (code, out) == (2, "")
    assert err.startswith("cec-mpi: error: ")
    assert err.count("\n") == 1
    assert names in err


@pytest.mark.parametrize(
    ("nodes", "tasks"),
    [
        ("n[1-2]", "2"),
        ("n[1-2]", "2(x3)"),
        ("n[1-2]", "two"),
        ("n[1-2", "2(x2)"),
        ("n[2-1]", "1"),
        ("n[1-]", "1"),
        ("n[1-999999999]", "1"),
        ("n[1-9999]m[1-9999]", "1"),
        ("a,,b", "1(x3)"),
        ("$(x)", "1"),
    ],
)
def test_an_allocation_that_cannot_be_read(hostfile, nodes, tasks):
    variables = {"SLURM_JOB_NODELIST": nodes, "SLURM_TASKS_PER_NODE": tasks}
    code, out, err = hostfile("--format", "openmpi", "--from-slurm", **variables)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.parametrize("tasks", ["two", "2(x", "-1,3", "2(x9999999)"])
def test_tasks_that_cannot_be_read_are_named(hostfile, tasks):
    variables = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": tasks}
    _, _, err = hostfile("--format", "openmpi", "--from-slurm", **variables)
    message = f"SLURM_TASKS_PER_NODE={tasks}: expected numbers, for example 2(x3),1"
    assert err == f"cec-mpi: error: {message}\n"


def test_the_format_has_to_be_named(hostfile):
    code, _, err = hostfile("node01:3")
    assert code == 2
    assert "--format" in err
