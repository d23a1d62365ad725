"""What a report needs of a run, gathered while its records are read once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.report.assignments import Assignments
from cec_mpi.report.away import Absences
from cec_mpi.report.bins import MOST_BINS, MachineBins
from cec_mpi.report.chunks import NUMBERS, Chunk, read_chunks
from cec_mpi.report.costs import Costs
from cec_mpi.report.kinds import said_of
from cec_mpi.report.live.words import host_words
from cec_mpi.runtime.records.directory import STEPS, SUMMARY, read_summary
from cec_mpi.runtime.records.events import Event
from cec_mpi.runtime.records.step import Checkpoint, Progress, Unfinished, Waiting, moment
from cec_mpi.store.files.durable import is_locked, was_locked
from cec_mpi.store.files.paths import as_path

Floats = NDArray[np.float64]

DONE, STOPPED, BROKEN, GOING = "done", "stopped", "broke off", "still going"


class Run:
    """A run, from its directory.

    Parameters
    ----------
    name : str
        The directory.
    asked : set of int
        Steps whose assignments are to be shown.
    most_bins : int
        Steps from which on bins have several.

    Attributes
    ----------
    headers : list of dict
        Of its parts.
    summary : dict
        Empty where the run has not come to its end.
    state : str
        `DONE`, `STOPPED` (with a checkpoint after its last step), `BROKEN` or `GOING`.
    numbers : dict of (T,) ndarray
        By step: the names of `NUMBERS`, and ``load_seconds`` (by which reading delayed it),
        ``bytes``, ``available`` (how many), ``stall_seconds`` and ``short_seconds`` (see `Costs`),
        and ``time`` (when it ended, in seconds of the run, without the time between parts).
    events : list of (int, int, int, str)
        Number of the step, kind, machine and text, by their steps.
    progress : list of (int, dict)
        What the task knew after so many steps.
    checkpoints, resumes : list of int
        After so many steps.
    waits : dict of int to Waiting
        What was last missing before a step, after so many steps.
    """

    def __init__(
        self, name: str, asked: frozenset[int] = frozenset(), most_bins: int = MOST_BINS
    ) -> None:
        self.name, path = name, as_path(name)
        if not path.is_dir():
            what = "is no directory" if path.exists() else "is missing"
            raise InputError(f"{name} {what}: expected the directory of results of a run")
        self.headers: list[dict[str, Any]] = []
        self.bins, self.costs = MachineBins(most_bins), Costs()
        self.assignments = Assignments(asked)
        self.absences = Absences()
        self.events: list[tuple[int, int, int, str]] = []
        self._placed: dict[tuple[int, int, int, str], None] = {}  # part, machine, rank and host
        self.progress: list[tuple[int, dict[str, float]]] = []
        self.checkpoints: list[int] = []
        self.waits: dict[int, Waiting] = {}
        self.resumes: list[int] = []
        self._parts: dict[str, list[Floats]] = {name: [] for name in NUMBERS}
        self._more: dict[str, list[Floats]] = {
            name: []
            for name in (
                "load_seconds",
                "stall_seconds",
                "short_seconds",
                "bytes",
                "available",
                "time",
            )
        }
        self.last_time = ""  # when its last step ended
        self._over = 0.0  # seconds of the parts before this one
        going = is_locked(path)
        try:
            os.lstat(path / STEPS)
        except FileNotFoundError:
            if not going:
                raise InputError(f"{name} holds no run: expected {STEPS} in it") from None
        except OSError as error:
            raise InputError(f"{name} cannot be read: {error.strerror}") from None
        for chunk in read_chunks(path / STEPS):
            self._add(chunk)
        summary = None if going else read_summary(path)
        if summary is None and not going and os.path.lexists(path / SUMMARY):
            raise InputError(f"{path / SUMMARY} cannot be read: expected what a run leaves")
        self.summary = summary or {}
        merged = {**self._parts, **self._more}
        self.numbers: dict[str, Floats] = {
            name: np.concatenate(parts) if parts else np.empty(0) for name, parts in merged.items()
        }
        for after, missing in self.waits.items():
            if after < self.steps:
                self.costs.wait(float(self.numbers["waited_seconds"][after]), missing)
        is_saved = self.checkpoints[-1:] == [self.steps] and not was_locked(path)
        over = DONE if self.summary else STOPPED if is_saved else BROKEN
        self.state = GOING if going else over

    @property
    def header(self) -> dict[str, Any]:
        """Of its first part."""
        return self.headers[0]

    @property
    def steps(self) -> int:
        """How many steps it made, with those made again after a resume."""
        return len(self.numbers["step"])

    @property
    def machines(self) -> int:
        """How many machines the store has, or the most that it had."""
        return self.bins.machines or int(self.header["machines"])

    def _add(self, chunk: Chunk) -> None:
        if chunk.begins:
            if self.headers:
                self.resumes.append(chunk.first)
                self._over = self._more["time"][-1][-1] if self._more["time"] else 0.0
            self.headers.append(chunk.header)
            for placed in _placed(chunk.header):
                self._settle(*placed)
            for name in ("started", "machines", "recovery", "rows_per_shard"):
                if name not in chunk.header:
                    raise InputError(f'a header of the records has no "{name}"')
        if chunk.steps:
            self._add_steps(chunk)
        for after, note in chunk.notes:
            if isinstance(note, Checkpoint):
                self.checkpoints.append(after)
            elif isinstance(note, Progress):
                self.progress.append((after, note.known))
            elif isinstance(note, Unfinished) and after:
                self._happen(note.events, self._last_step)
                self.absences.end(note.events, self._last_step)
            elif isinstance(note, Waiting):
                self.waits[after] = note

    def _add_steps(self, chunk: Chunk) -> None:
        rows = chunk.header["rows_per_shard"]
        self.absences.add(chunk)
        self.bins.add(chunk, rows)
        self.costs.add(chunk, chunk.header["recovery"], rows)
        for name in NUMBERS:
            self._parts[name].append(chunk.numbers[name])
        sizes, here = np.zeros((2, chunk.steps))
        for stretch, paces in zip(chunk.stretches, self.costs.paces, strict=True):
            steps, step = slice(stretch.begin, stretch.end), stretch.step
            sizes[steps] = step["bytes"]
            here[steps] = len(step["available"])
            self._happen(step["events"], step["step"])
            self.assignments.add(chunk.first, stretch, paces)
        self.last_time, self._last_step = chunk.times[-1], int(chunk.numbers["step"][-1])
        self._more["load_seconds"].append(self.costs.held_up)
        self._more["stall_seconds"].append(self.costs.stall_seconds)
        self._more["short_seconds"].append(self.costs.short_seconds)
        self._more["available"].append(here)
        self._more["bytes"].append(sizes)
        self._more["time"].append(self._times(chunk))

    def _happen(self, events: Sequence[Event], step: int) -> None:
        for event in events:
            self.events.append((step, *said_of(event)))
            self._settle(event.get("joined"), event.get("rank"), event.get("host"))

    def _settle(self, machine: Any, rank: Any, host: Any) -> None:
        """Note the host of a machine, if there is one."""
        if type(machine) is type(rank) is int and isinstance(host, str):
            self._placed[len(self.headers), machine, rank, host] = None

    @property
    def hosts(self) -> dict[int, list[str]]:
        """Where each machine was, as far as it is known, and the master under 0, in order."""
        carried = Counter((part, rank) for part, _, rank, _ in self._placed)
        found: dict[int, list[str]] = {}
        for part, machine, rank, host in self._placed:
            words = host_words(rank, host, carried[part, rank])
            if words not in found.setdefault(machine, []):
                found[machine].append(words)
        return found

    def _times(self, chunk: Chunk) -> Floats:
        began = moment(chunk.header["started"])
        found = np.array(list(map(moment, chunk.times)))
        last = self._more["time"][-1][-1] if self._more["time"] else 0.0
        since = np.maximum.accumulate(np.maximum(self._over + found - began, last))
        return np.asarray(np.round(since, 3), np.float64)


def _placed(header: dict[str, Any]) -> Iterator[tuple[Any, int, Any]]:
    """Yield machines, ranks and hosts with which a part of a run began."""
    hosts, machines = header.get("hosts"), header.get("machine_of_rank")
    if machines and hosts:
        for rank, machine in enumerate(machines):
            yield machine, rank, hosts[rank if rank < len(hosts) else 0]
