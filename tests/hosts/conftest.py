"""Several hosts on this computer (`scripts/hosts`), and a launcher that starts ranks on them.

A test that leaves a process on a host fails, and the process is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers import ROOT
from helpers.commands import CommandResult, environment, mpirun, run_to_end
from helpers.mpi_at_hand import ONE_HOST_ONLY, library
from helpers.waiting import END_LIMIT, LIMIT

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Hosts:
    """Hosts node1 .. nodeN.

    Attributes
    ----------
    directory : Path
        Contains their files; its ``local`` is a different directory on each host.
    names : tuple of str
    """

    directory: Path
    names: tuple[str, ...]

    @property
    def local(self) -> Path:
        return self.directory / "local"

    def run(
        self, host: str, *args: object, variables: dict[str, str] | None = None
    ) -> CommandResult:
        """Run a command on a host until it ends."""
        result = run_to_end(self._command(host, args), variables=variables)
        assert result.returncode is not None, f"timeout of {args}: {result.stderr}"
        return result

    def start(self, host: str, *args: object) -> subprocess.Popen[str]:
        """Start a command on a host."""
        pipe = subprocess.PIPE
        command = self._command(host, args)
        return subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, text=True)

    def _command(self, host: str, args: Sequence[object]) -> list[str]:
        script = ROOT / "scripts" / "hosts"
        return [str(word) for word in (script, "on", self.directory, host, *args)]

    def set_link(self, host: str, *args: object) -> None:
        run_hosts_script("link", self.directory, host, *args)

    def switch_off(self, host: str) -> None:
        run_hosts_script("off", self.directory, host)

    def processes(self) -> dict[int, str]:
        """Return the processes on the hosts, without their init processes."""
        init = {int((self.directory / name / "init").read_text()) for name in self.names}
        homes = [Path("/proc") / str(pid) for pid in init]
        spaces = {(home / "ns/pid").readlink() for home in homes if home.exists()}
        command_lines = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if int(process.name) not in init and (process / "ns/pid").readlink() in spaces:
                    args = (process / "cmdline").read_bytes().split(b"\0")
                    command_lines[int(process.name)] = b" ".join(args).decode(errors="replace")
            except OSError:  # it has ended
                continue
        return command_lines


def run_hosts_script(*args: object) -> None:
    command = [str(word) for word in (ROOT / "scripts" / "hosts", *args)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert result.returncode == 0, result.stderr


@contextmanager
def start_hosts(directory: Path, count: int) -> Iterator[Hosts]:
    run_hosts_script("up", count, directory)
    try:
        yield Hosts(directory, tuple(f"node{n}" for n in range(1, count + 1)))
    finally:
        run_hosts_script("down", directory)
        assert not directory.exists()


@pytest.fixture(scope="session")
def hosts(tmp_path_factory):
    with start_hosts(tmp_path_factory.mktemp("net") / "hosts", 3) as hosts:
        yield hosts


@pytest.fixture
def two_hosts(tmp_path):
    """Two hosts for one test, which may cut their links."""
    with start_hosts(tmp_path / "hosts", 2) as hosts:
        yield hosts


@pytest.fixture
def no_survivors(hosts):
    yield
    deadline = time.monotonic() + END_LIMIT
    while (survivors := hosts.processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert not survivors


@pytest.fixture
def start(hosts, tmp_path, no_survivors):
    """Run ``cec-mpi`` from the first host, with these numbers of ranks on the hosts."""
    is_open_mpi = library().startswith("Open MPI")
    launcher = ["env", *(f"--unset={name}" for name in ONE_HOST_ONLY), mpirun()]
    launcher += ["--bind-to", "none", "--hostfile"] if is_open_mpi else ["-machinefile"]

    def start(*args, ranks: Sequence[int] = (2, 1, 1), options=(), hosts=hosts):
        pairs = [pair for pair in zip(hosts.names, ranks, strict=True) if pair[1]]
        line = "{} slots={}\n" if is_open_mpi else "{}:{}\n"
        file = tmp_path / "hostfile"
        file.write_text("".join(line.format(*pair) for pair in pairs))
        command = [*launcher, file, *options, "-n", sum(ranks), BIN / "cec-mpi", *args]
        # Open MPI cannot know that all hosts share the cores of this computer.
        return hosts.run("node1", *command, variables={"OMPI_MCA_mpi_yield_when_idle": "1"})

    return start


@dataclass(frozen=True)
class Run:
    """The files and the output of a run."""

    out: Path
    result: CommandResult

    @property
    def steps(self):
        return read_steps(self.out / "steps.jsonl")[1]

    @property
    def header(self):
        return read_steps(self.out / "steps.jsonl")[0]

    @property
    def messages(self) -> list[str]:
        """The messages of cec_mpi, without those of the launcher and ssh."""
        return re.findall(r"^cec-mpi: .*$", self.result.stderr, re.MULTILINE)

    def hosts_of_machines(self) -> dict[int, str]:
        """Return the host of each machine at the start."""
        pairs = zip(self.header["machine_of_rank"], self.header["hosts"], strict=True)
        return {machine: host for machine, host in pairs if machine}


@pytest.fixture(scope="session")
def inputs(make_store):
    """A store of three machines, any two of which suffice, with vectors and their products."""
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((600, 60)), rng.standard_normal((12, 60))
    store = make_store(X, 3, 2).path
    np.save(store.parent / "W.npy", W)
    return SimpleNamespace(store=store, vectors=store.parent / "W.npy", expected=W @ X.T)


@pytest.fixture
def multiply(start, inputs, tmp_path):
    """Multiply the vectors and check the products."""

    def multiply(*args, store=inputs.store, code=0, **options):
        out = tmp_path / "out"
        result = start("run", store, "--out", out, f"vectors={inputs.vectors}", *args, **options)
        assert code in (None, result.returncode), result.stderr
        if not code:
            np.testing.assert_allclose(np.load(out / "result.npy"), inputs.expected, atol=1e-9)
        return Run(out, result)

    return multiply
