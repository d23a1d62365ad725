"""What every contestant does: power iteration, then least squares, while machines come and go."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]

_SPIKE, _NOISE = 3.0, 0.3  # of X = I + spike u u' + noise: both solvers converge on it


@dataclass(frozen=True)
class Job:
    """All that a contestant is told.

    Attributes
    ----------
    directory : str
        With ``X.npy``, stores, and room for what it writes.
    size : int
        X is size x size.
    recovery : int
        L.
    speeds : tuple of float
        Of machines 1..N, relative.
    base : float
        Rows per second of a machine of speed 1.
    available : tuple of tuple of int
        Numbers of the machines that are available in each iteration.
    power : int
        So many iterations are of the power method, the others of least squares.
    seed : int
    way : str
        Which of the ways that a program knows.
    stragglers : int
        S, where there is a code.
    """

    directory: str
    size: int
    recovery: int
    speeds: tuple[float, ...]
    base: float
    available: tuple[tuple[int, ...], ...]
    power: int
    seed: int
    way: str = ""
    stragglers: int = 0

    @property
    def machines(self) -> int:
        """N."""
        return len(self.speeds)

    def rate(self, machine: int) -> float:
        """Rows per second of a machine, from 1."""
        return self.speeds[machine - 1] * self.base

    def path(self, name: str) -> Path:
        """Of a file in its directory."""
        return Path(self.directory) / name

    def matrix(self) -> NDArray[np.float64]:
        """X, memory-mapped."""
        found: NDArray[np.float64] = np.load(self.path("X.npy"), mmap_mode="r")
        return found

    def write(self) -> Path:
        """The file that `read` reads."""
        path = self.path("job.json")
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: str) -> Job:
        """What `write` wrote."""
        content: dict[str, Any] = json.loads(Path(path).read_text())
        sets = content.pop("available"), content.pop("speeds")
        return cls(**content, available=tuple(map(tuple, sets[0])), speeds=tuple(sets[1]))


class Pace:
    """Has a machine take as long as one of its speed takes.

    Parameters
    ----------
    rate : float
        Rows per second.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def wait(self, begin: float, rows: int) -> None:
        """Sleep for what is left of the time that these rows take, since `begin`."""
        time.sleep(max(0.0, begin + rows / self._rate - time.perf_counter()))


class Contestant:
    """One way to multiply by X on machines that come and go.

    Attributes
    ----------
    moved : int
        Bytes that were sent, or read again, since the work began.
    """

    moved: int = 0

    def await_machines(self, machines: tuple[int, ...]) -> None:
        """Let those come that will be available; this is not timed."""

    def be_available(self, machines: tuple[int, ...]) -> None:
        """From now on, these machines are."""
        raise NotImplementedError

    def forward(self, w: Vector) -> Vector:
        """X w."""
        raise NotImplementedError

    def adjoint(self, v: Vector) -> Vector:
        """X' v."""
        raise NotImplementedError


@dataclass
class Outcome:
    """How it went.

    Attributes
    ----------
    setup_seconds : float
        Until all machines held what they compute with.
    iteration_seconds, event_seconds : list of float
        Of each iteration, and of each change of machines where that takes a time of its own.
    moved : int
        Bytes of vectors, and of rows after the start.
    """

    setup_seconds: float = 0.0
    iteration_seconds: list[float] = field(default_factory=list)
    event_seconds: list[float] = field(default_factory=list)
    moved: int = 0

    @property
    def seconds(self) -> float:
        """Of all iterations and events."""
        return sum(self.iteration_seconds) + sum(self.event_seconds)

    def write(self, job: Job) -> None:
        """For `read`."""
        job.path("outcome.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, job: Job) -> Outcome:
        """What `write` wrote."""
        return cls(**json.loads(job.path("outcome.json").read_text()))


class State:
    """The numbers of both solvers: all that a checkpoint has to keep.

    Attributes
    ----------
    arrays : dict of str to ndarray
        ``v``: (n,), of the power method; ``x``, ``r``, ``p``: (n,), and ``gamma``: (), of
        conjugate gradients on the normal equations (CGLS).
    """

    def __init__(self, job: Job) -> None:
        rng = np.random.default_rng(job.seed + 1)
        v, b = rng.standard_normal((2, job.size))
        zeros = np.zeros(job.size)
        self.arrays: dict[str, Vector] = {
            "v": v,
            "x": zeros,
            "r": b,
            "p": zeros,
            "gamma": np.array(0.0),
        }

    def load(self, path: Path) -> None:
        """Go on from a checkpoint."""
        with np.load(path) as saved:
            self.arrays = {name: saved[name] for name in self.arrays}

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        with path.open("wb") as file:
            np.savez(file, **self.arrays)  # type: ignore[arg-type]

    def iterate(self, contestant: Contestant, in_power: bool) -> None:
        """One iteration of the power method, with one product, or of CGLS, with two."""
        s = self.arrays
        if in_power:
            product = contestant.forward(s["v"])
            s["v"] = product / np.linalg.norm(product)
            return
        if not s["gamma"]:
            s["p"] = contestant.adjoint(s["r"])
            s["gamma"] = np.array(s["p"] @ s["p"])
        q = contestant.forward(s["p"])
        alpha = _share(s["gamma"], q @ q)
        s["x"] = s["x"] + alpha * s["p"]
        s["r"] = s["r"] - alpha * q
        gradient = contestant.adjoint(s["r"])
        before, s["gamma"] = s["gamma"], np.array(gradient @ gradient)
        s["p"] = gradient + _share(s["gamma"], before) * s["p"]

    def distance(self, other: State) -> float:
        """The largest relative difference of the eigenvector and of the solution, or NaN."""
        pairs = [(self.arrays[name], other.arrays[name]) for name in ("v", "x")]
        # Not max() of Python, which passes over what is not a number.
        return float(np.max([np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0) for a, b in pairs]))


def _share(part: Vector, whole: Vector) -> Vector:
    """One over the other; nothing where both have become too small for a float64."""
    return part / whole if whole else np.zeros(())


def perform(
    contestant: Contestant, job: Job, setup_seconds: float, start: int = 0, stop: int | None = None
) -> None:
    """Do the work, or the iterations from `start` to `stop`; writes checkpoint and outcome."""
    state, outcome = State(job), Outcome(setup_seconds)
    if start:
        state.load(job.path("state.npz"))
    machines = job.available[start]
    contestant.moved = 0
    for iteration, available in list(enumerate(job.available))[start:stop]:
        if available != machines:
            contestant.await_machines(available)
            begin = time.perf_counter()
            contestant.be_available(available)
            outcome.event_seconds.append(time.perf_counter() - begin)
            machines = available
        begin = time.perf_counter()
        state.iterate(contestant, iteration < job.power)
        outcome.iteration_seconds.append(time.perf_counter() - begin)
    outcome.moved = contestant.moved
    state.save(job.path("state.npz"))
    outcome.write(job)


def make_matrix(path: Path, size: int, seed: int) -> None:
    """Write X: the identity, one direction that is larger, and noise."""
    rng = np.random.default_rng(seed)
    u = rng.standard_normal(size)
    u /= np.linalg.norm(u)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(size, size))
    rows = max(1, (32 << 20) // (8 * size))
    for first in range(0, size, rows):
        part = X[first : first + rows]
        part[:] = rng.standard_normal(part.shape) * (_NOISE / np.sqrt(size))
        part += _SPIKE * np.outer(u[first : first + rows], u)
        part[np.arange(len(part)), first + np.arange(len(part))] += 1.0
    X.flush()
