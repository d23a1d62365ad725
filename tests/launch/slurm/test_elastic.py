"""Machines as jobs of an array: late, preempted, and on a node that fails."""

from __future__ import annotations

import json
import shutil
import time

import numpy as np
import pytest

from cec_mpi.runtime.records.reading import read_records
from helpers import ROOT
from helpers.endless_task import STOP_FILE, make_vector
from helpers.jobs import Job
from helpers.waiting import LIMIT, wait_until

pytestmark = [pytest.mark.any_mpi, pytest.mark.needs("slurm")]
SLOW = "--emulate-speeds 2,2,3,3,4,4 --emulate-base 400"  # about 20 steps per second


@pytest.fixture(scope="module")
def symmetric(make_store):
    """Six machines, any three of which are enough."""
    factor = np.random.default_rng(6).standard_normal((60, 60))
    return make_store(factor + factor.T, 6, 3)


class ElasticRun:
    """A run on the cluster: its master on n1, two machines on each other node."""

    def __init__(self, slurm, store):
        self.slurm, self.out = slurm, slurm.directory / "out"
        for file in (store.path.parent / "X.npy", ROOT / "tests" / "helpers" / "endless_task.py"):
            shutil.copy(file, slurm.directory)
        options = "--cpus-per-task 2 --sbatch exclude=n1 --time 10"
        run = f"run {store.path} --out out endless_task:products --checkpoint-every 5 {SLOW}"
        hint = slurm.run(*f"cec-mpi slurm --elastic 4 {options} {run}".split())
        assert hint == "sbatch cec-mpi-machines.sbatch $(sbatch --parsable cec-mpi-master.sbatch)\n"
        self.master = self.submit("--partition=high", "--nodelist=n1", "cec-mpi-master.sbatch")
        self.tasks: list[Job] = []

    def submit(self, *words):
        return Job(self.slurm, self.slurm.run("sbatch", "--parsable", *words).strip())

    def start_machines(self, partition, count):
        """Start machines as jobs of one array."""
        words = f"--partition={partition}", f"--array=1-{count}"
        array = self.submit(*words, "cec-mpi-machines.sbatch", self.master.number)
        self.tasks += [Job(self.slurm, f"{array.number}_{task}") for task in range(1, count + 1)]

    def preempt(self, node):
        urgent = self.slurm.directory / "urgent.sbatch"
        urgent.write_text("#!/bin/bash\nexit 0\n")
        job = self.submit("--partition=high", f"--nodelist={node}", "--exclusive", urgent)
        assert job.wait() == "COMPLETED"

    def tasks_on(self, node):
        return [task for task in self.tasks if task.field("NodeList") == node]

    def events(self, *kinds):
        path = self.out / "steps.jsonl"
        if not path.exists() or b"\n" not in path.read_bytes():
            return []
        steps = read_records(path).steps  # the last line may be half written
        return [event for step in steps for event in step.events if event.keys() & set(kinds)]

    def wait_for_events(self, count, *kinds):
        """Wait until `count` events of these kinds have been recorded."""
        deadline, next_resume = time.monotonic() + LIMIT, 0.0
        while len(self.events(*kinds)) < count:
            assert time.monotonic() < deadline, f"{self.events(*kinds)}\n{self.describe()}"
            if time.monotonic() > next_resume:
                self.slurm.resume_jobs()
                next_resume = time.monotonic() + 5
            time.sleep(0.1)

    def describe(self):
        """Return the state of Slurm and the output of the jobs."""
        queue = self.slurm.query("squeue", "--array", "--format=%i %T %r %N")
        nodes = self.slurm.query("sinfo", "--Node", "--long")
        outputs = [job.output() for job in (self.master, *self.tasks)]
        return "\n".join([queue, nodes, *outputs])


def test_machines_join_late_are_preempted_and_rejoin(slurm, symmetric):
    run = ElasticRun(slurm, symmetric)
    run.start_machines("low", 4)  # with 10 s of notice
    run.wait_for_events(4, "joined")
    run.start_machines("spot", 2)  # late, and preempted without notice
    run.wait_for_events(6, "joined")

    warned = run.tasks_on("n2")
    run.preempt("n2")
    run.wait_for_events(2, "left")
    assert [task.field("Restarts") for task in run.tasks] == [
        "1" if task in warned else "0" for task in run.tasks
    ]
    run.wait_for_events(8, "joined")

    killed = run.tasks[4:]
    run.preempt(killed[0].field("NodeList"))
    run.wait_for_events(4, "left", "lost")
    run.wait_for_events(10, "joined")

    with slurm.node_down("n3"):
        run.wait_for_events(6, "left", "lost")
    run.wait_for_events(12, "joined")

    slurm.run("scontrol", "requeue", run.master.number)
    run.wait_for_events(18, "joined")
    (slurm.directory / STOP_FILE).touch()
    for job in (run.master, *run.tasks):
        assert job.wait() == "COMPLETED", run.describe()

    summary = json.loads((run.out / "summary.json").read_text())
    assert summary["wrong"] == 0
    w = sum(make_vector(number, 60) for number in range(summary["products"]))
    result = np.load(run.out / "result.npy")
    np.testing.assert_allclose(result, symmetric.X @ w, rtol=1e-9, atol=1e-7)
    assert run.master.field("Restarts") == "1"
    assert not (run.out / "connection.json").exists()


def test_pending_machines_end_with_the_run(slurm, symmetric):
    run = ElasticRun(slurm, symmetric)
    run.start_machines("low", 8)  # two of them wait for a node
    run.wait_for_events(6, "joined")
    (slurm.directory / STOP_FILE).touch()
    assert run.master.wait() == "COMPLETED"
    assert [task.wait() for task in run.tasks[:6]] == ["COMPLETED"] * 6, run.describe()
    wait_until(lambda: not slurm.jobs(), describe=slurm.jobs, pause=0.2)
    assert not any(task.output() for task in run.tasks[6:])
