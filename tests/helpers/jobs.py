"""Slurm jobs, submitted as a user submits them."""

from __future__ import annotations

import getpass
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.commands import count_steps, environment
from helpers.waiting import LIMIT, wait_until

# A master and three machines. Open MPI starts no more ranks on a node than it has cores.
SPREAD = "--nodes=2 --ntasks-per-node=2 --ntasks=4"
_END_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL")


@dataclass(frozen=True)
class SlurmClient:
    """A client that runs Slurm's commands in one directory, from which it submits jobs."""

    variables: dict[str, str]
    directory: Path

    def run(self, *args: object, limit: float = LIMIT) -> str:
        """Run a command that must succeed; return its output."""
        result = self._attempt(args, limit)
        assert result.returncode == 0, f"{result}"
        return result.stdout

    def query(self, *args: object) -> str:
        """Return the output of a query; repeat the query while the controller is busy."""

        def attempt() -> subprocess.CompletedProcess[str] | None:
            result = self._attempt(args, LIMIT)
            return None if result.returncode else result

        return wait_until(attempt, pause=0.5).stdout

    def _attempt(self, args: Sequence[object], limit: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in args],
            cwd=self.directory,
            env=environment(**self.variables),
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )

    def jobs(self) -> str:
        """Return all jobs, one per line."""
        return self.query("squeue", "--noheader")

    def cancel_jobs(self) -> None:
        """Cancel all jobs of this user."""
        self.run("scancel", "--quiet", f"--user={getpass.getuser()}")

    def resume_jobs(self) -> None:
        """Start all requeued jobs soon; Slurm would wait for two minutes.

        Call it repeatedly: a node that has failed may delay the jobs once more. If a node returns
        while it still ends a job, Slurm holds that job and drains the node, even if another job
        runs on it.
        """
        drained = self.query("sinfo", "--noheader", "--Node", "--states=drain", "--format=%N")
        for node in set(drained.split()):
            self._run_if_possible(f"scontrol update NodeName={node} State=RESUME")
        for line in self.query("squeue", "--noheader", "--array", "--format=%i %r").splitlines():
            number, reason = line.split(maxsplit=1)
            if reason == "launch failed requeued held":
                self._run_if_possible(f"scontrol release {number}")
            if reason == "BeginTime":
                self._run_if_possible(f"scontrol update JobId={number} StartTime=now+2")

    def _run_if_possible(self, command: str) -> None:
        """Run a command, and ignore its failure if jobs or nodes have changed meanwhile."""
        self.run("bash", "-c", f"{command} || true")

    @contextmanager
    def node_down(self, node: str) -> Iterator[None]:
        """Set the state of a node to DOWN during the block."""
        self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        try:
            yield
        finally:
            wait_until(lambda: self._resume_node(node), pause=0.1)

    def _resume_node(self, node: str) -> bool:
        """Resume a node; return whether it is idle."""
        self._run_if_possible(f"scontrol update NodeName={node} State=RESUME")
        args = ("--noheader", f"--nodes={node}", "--partition=low", "--format=%t")
        return self.query("sinfo", *args).strip() == "idle"

    def submit(self, script: Path, *args: object, options: str = "") -> Job:
        """Submit a batch script with its arguments and additional options of sbatch."""
        number = self.run("sbatch", "--parsable", *f"{SPREAD} {options}".split(), script, *args)
        return Job(self, number.strip())

    def write_script(self, line: str) -> Path:
        """Write the batch script that ``cec-mpi slurm`` prints for a command line."""
        path = self.directory / "job.sbatch"
        path.write_text(self.run("cec-mpi", "slurm", *shlex.split(line)))
        return path


@dataclass(frozen=True)
class Job:
    """A submitted job."""

    slurm: SlurmClient
    number: str

    def field(self, name: str) -> str:
        """Return a field of the output of ``scontrol show job``."""
        text = self.slurm.query("scontrol", "show", "job", "--oneliner", self.number)
        return re.search(rf"(?:^| ){name}=(.*?)(?: \w+[:\w/]*=|$)", text, re.MULTILINE)[1]

    def output(self) -> str:
        """Return the output of the job so far."""
        return "".join(
            path.read_text() for path in self.slurm.directory.glob(f"slurm-{self.number}*.out")
        )

    def wait(self, *states: str) -> str:
        """Wait until the job is in one of these states, by default a final one."""
        wanted = states or _END_STATES
        return wait_until(
            lambda: (state := self.field("JobState")) in wanted and state,
            describe=lambda: f"{self.field('JobState')}, expected {wanted}: {self.output()}",
            pause=0.2,
        )

    def wait_for_steps(self, out: Path, steps: int) -> None:
        """Wait until the run has recorded this number of steps."""

        def has_steps() -> bool:
            assert self.field("JobState") not in _END_STATES, self.output()
            return count_steps(out) >= steps

        wait_until(has_steps, describe=self.output, pause=0.2)

    def resume(self) -> None:
        """Start a requeued job soon; Slurm would wait for two minutes.

        A node cannot restart a job within the second in which the job has ended.
        """
        self.wait("PENDING")
        self.slurm.run("scontrol", "update", f"JobId={self.number}", "StartTime=now+3")
