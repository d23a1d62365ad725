"""Runs under mpirun: right results, and records that say what happened.

Runs that need no start of their own are in `tests/ranks/test_runs.py`.
"""

from __future__ import annotations

import json
import signal
import sys

import numpy as np
import pytest

from cec_mpi.runtime.availability.models import PAPER_AVAILABLE
from cec_mpi.runtime.records.recorder import read_steps
from helpers.waiting import LIMIT, wait_for_file

SPEEDS = (2, 2, 3, 3, 4, 4)


def vectors(directory, count, columns):
    W = np.random.default_rng(5).standard_normal((count, columns))
    np.save(directory / "W.npy", W)
    return W


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.fixture(scope="module")
def paper_run(run, large_store, tmp_path_factory):
    """The four steps of the paper on emulated machines, each made twice."""
    directory = tmp_path_factory.mktemp("paper")
    W = vectors(directory, 8, large_store.columns)
    ticks = [step for step in PAPER_AVAILABLE for _ in range(2)]
    (directory / "a.json").write_text(json.dumps({"available": ticks}))
    speeds = ",".join(map(str, SPEEDS))
    words = ["mpirun", "-n", 7, "cec-mpi", "run", large_store.path, "--out", directory / "out"]
    words += [f"vectors={directory / 'W.npy'}", "--availability", directory / "a.json"]
    words += ["--speeds", speeds, "--emulate-speeds", speeds, "--emulate-base", 1000]
    done = run([*words, "--threads", 1])
    assert done.returncode == 0, done.stderr
    header, steps = read_steps(directory / "out" / "steps.jsonl")
    return directory / "out", header, steps, W


def test_the_paper_run_is_right(paper_run, large_store):
    out, _, steps, W = paper_run
    assert relative_error(np.load(out / "result.npy"), W @ large_store.X.T) < 1e-10
    assert [tuple(step["available"]) for step in steps[::2]] == list(PAPER_AVAILABLE)
    assert [step["rows"] for step in steps[::2]] == [
        [140, 140, 210, 210, 280, 280],
        [168, 168, 252, 0, 336, 336],
        [240, 240, 360, 0, 420, 0],
        [0, 420, 420, 0, 420, 0],
    ]


@pytest.mark.any_mpi
def test_a_plan_is_sent_only_when_machines_change(paper_run):
    _, _, steps, _ = paper_run
    assert [step["plan_changed"] for step in steps] == [True, False] * 4
    for new, known in zip(steps[::2], steps[1::2], strict=True):
        assert known["bytes"]["announce"] < new["bytes"]["announce"]


@pytest.mark.any_mpi
def test_emulated_machines_take_their_time(paper_run):
    _, header, steps, _ = paper_run
    assert header["emulation"]["base"] == 1000
    for step in steps:
        for rows, seconds, speed in zip(step["rows"], step["seconds"], SPEEDS, strict=True):
            assert seconds >= rows / (1000 * speed)
        assert step["measured_makespan"] == max(step["seconds"])


@pytest.mark.any_mpi
def test_a_makespan_is_predicted_from_the_second_step_on(paper_run):
    _, _, steps, _ = paper_run
    assert steps[0]["predicted_makespan"] is None
    for step in steps[1:]:
        assert step["predicted_makespan"] >= step["bound"] > 0


def test_the_header_says_what_ran_where(paper_run):
    _, header, _, _ = paper_run
    assert {"cec_mpi", "python", "numpy", "scipy", "mpi4py"} <= set(header["versions"])
    assert header["versions"]["numpy"] == np.__version__
    assert header["mpi_library"].strip()
    assert len(header["hosts"]) == 7
    assert header["threads"] == [1] * 7
    assert header["taking_part"] == [1, 2, 3, 4, 5, 6]
    assert (header["machines"], header["recovery"]) == (6, 3)
    assert (header["rows"], header["columns"], header["rows_per_shard"]) == (1259, 12, 420)
    assert header["scheme"] == "heterogeneous"
    assert header["speeds"] == list(SPEEDS)


@pytest.mark.any_mpi
def test_the_summary_adds_up(paper_run):
    out, _, steps, _ = paper_run
    summary = json.loads((out / "summary.json").read_text())
    assert summary["task"] == "matvec"
    assert summary["steps"] == 8
    assert summary["plan_changes"] == 4
    assert summary["compute_seconds"] == pytest.approx(sum(s["measured_makespan"] for s in steps))
    assert summary["seconds"] >= summary["compute_seconds"]


@pytest.mark.any_mpi
def test_every_machine_has_its_log(paper_run):
    out, _, _, _ = paper_run
    logs = {path.name for path in (out / "logs").iterdir()}
    assert logs == {"master.log"} | {f"machine-{n:04d}.log" for n in range(1, 7)}
    assert "machine 3 on" in (out / "logs" / "machine-0003.log").read_text()


API = """
import sys
import numpy as np
from mpi4py import MPI
import cec_mpi

w = np.arange(12.0)
with cec_mpi.open_operator({store!r}, MPI.COMM_WORLD, speeds=(1, 2, 3)) as X:
    if X is not None:
        print("shape", *X.shape)
        np.save("y.npy", X.matvec(w))
        {statement}
print("rank", MPI.COMM_WORLD.rank, "is through")
"""


@pytest.fixture
def run_script(run, small_store, tmp_path):
    def run_script(statement="pass"):
        script = tmp_path / "script.py"
        script.write_text(API.format(store=str(small_store.path), statement=statement))
        return run(["mpirun", "-n", 4, sys.executable, script], cwd=tmp_path)

    return run_script


def test_the_python_interface(run_script, small_store, tmp_path):
    done = run_script()
    assert done.returncode == 0, done.stderr
    assert done.told == ""
    assert done.stdout.count("shape 31 12") == 1
    assert sum("is through" in line for line in done.stdout.splitlines()) == 4
    assert relative_error(np.load(tmp_path / "y.npy"), small_store.X @ np.arange(12)) < 1e-10


def test_an_exception_in_a_users_script_is_shown_once_and_ends_it(run_script):
    done = run_script("raise LookupError('lost')")
    assert done.returncode == 1
    assert done.told.count("Traceback") == 1
    assert done.told.endswith("LookupError: lost")
    assert "is through" not in done.stdout


def test_a_script_that_leaves_with_a_code(run_script):
    done = run_script("sys.exit(9)")
    assert done.returncode == 9
    assert "Traceback" not in done.told


@pytest.mark.parametrize("ranks", [pytest.param(0, marks=pytest.mark.any_mpi), 2])
def test_other_commands_print_once(cec, small_store, ranks):
    """`test_store_commands.py` has encode and decode."""
    info = cec("info", small_store.path, ranks=ranks)
    assert info.returncode == 0
    assert info.stdout.count("31 x 12 float64\n") == 1

    verify = cec("verify", small_store.path, ranks=ranks)
    assert verify.returncode == 0
    assert verify.stdout.splitlines() == [f"shard-000{n}.npy: good" for n in (1, 2, 3)]

    told = cec("run", "--help", ranks=ranks)
    assert told.returncode == 0
    assert told.stdout.count("usage: cec-mpi") == 1
    assert all(done.told == "" for done in (info, verify, told))


@pytest.mark.any_mpi
def test_a_file_says_who_is_up_while_a_run_goes_on(start, large_store, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((5000, large_store.columns)))  # for a minute or two
    up, path = tmp_path / "up.txt", tmp_path / "out" / "steps.jsonl"
    up.write_text("1 2\n")
    words = ["run", large_store.path, "--out", "out", "vectors=W.npy", "--wait"]
    words += ["--availability-command", "cat up.txt", "--availability-every", 0.1]
    words += ["--emulate-speeds", "2,2,3,3,4,4", "--emulate-base", 5000, "--serial"]
    process = start(["cec-mpi", *words])

    wait_for_file(path, "header", process)  # and no step can be made yet
    sets = [(1, 2, 3, 4, 5, 6), (2, 3, 5), (2, 3, 5, 6)]
    for printed, available in zip(("1,2,3,4,5,6", "[2, 3, 5]", "6 5\n3 2"), sets, strict=True):
        (tmp_path / "new").write_text(printed)
        (tmp_path / "new").rename(up)
        wait_for_file(path, f'"available":[{",".join(map(str, available))}]', process)
    process.send_signal(signal.SIGUSR1)
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 6, stderr
    _, made = read_steps(path)
    assert list(dict.fromkeys(tuple(step["available"]) for step in made)) == sets
