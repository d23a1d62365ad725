"""A session: the master's side of its machines, and the store that they open."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cec_mpi.errors import CecError, DamagedStoreError, InputError, MachineError, SlowWarning
from cec_mpi.runtime.machine.emulation import Emulation, fit_base
from cec_mpi.runtime.master.lockstep import ELASTIC_CONTINUES
from cec_mpi.runtime.master.master import Master
from cec_mpi.runtime.master.planning import OpenStore, StepPlanner
from cec_mpi.runtime.master.schedule import Schedule
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.options.sharing import speeds_by_machine
from cec_mpi.runtime.processes.launcher import detect_launcher
from cec_mpi.runtime.processes.places import (
    Place,
    find_oversubscription,
    limit_threads,
    missing_shards_message,
    rank_count_problem,
)
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.header import host_of_ranks, run_header
from cec_mpi.runtime.session.interrupts import InterruptGuard
from cec_mpi.runtime.session.metrics import publish_metrics
from cec_mpi.runtime.session.turns import FairLock
from cec_mpi.runtime.wire.orders import Opening, OpenReport
from cec_mpi.runtime.wire.protocol import Hub
from cec_mpi.store.files.paths import as_path, node_directory
from cec_mpi.store.reader import Store, open_store


class ExecutionMode(Enum):
    """How the machines of a session run."""

    SERIAL = "all in the process of the master"
    LOCKSTEP = "ranks of MPI that make each step together"
    ELASTIC = "processes that join over sockets, and may be late, lost or leave"


class Session:
    """The master's side of the machines that serve it, on rank 0.

    Parameters
    ----------
    hub : Hub
        The wire.
    places : list of Place
        Where each rank runs, the master first; one place if all are in this process.
    library : str
        Name of the MPI library, for the records.
    kept : ExitStack
        Closed when the session ends.
    logs : Path, optional
        Directory for a log of each machine.
    turns : FairLock, optional
        Turns of the threads that use the session.
    running : ExecutionMode
        How the machines run.
    gather : callable, optional
        Takes the number of machines that are enough, waits for those that were started, and
        returns the places of the master and the machines.

    Attributes
    ----------
    schedule : Schedule
        The availability at each step.
    check_run : callable
        Called before each step and while a step waits; an exception ends the step.
    slow_warnings : list of str
        Warnings from the start: reasons why the run is slower than it could be.
    log_problems : list of str
        Reasons why machines have no logs.
    """

    schedule: Schedule

    def __init__(
        self,
        hub: Hub,
        places: list[Place],
        library: str,
        kept: ExitStack,
        logs: Path | None = None,
        turns: FairLock | None = None,
        running: ExecutionMode = ExecutionMode.SERIAL,
        gather: Callable[[int], list[Place]] | None = None,
    ) -> None:
        self.turns = turns or FairLock()
        self.check_run: Callable[[], None] = lambda: None
        self._interrupts = InterruptGuard()
        self._ended = False
        self._exit_stack = kept
        self._hub = hub
        self._places = places
        self._library = library
        self._running = running
        self._gather = gather
        self._flush_due: Callable[[], None] = lambda: None  # lines of records
        self._logs = logs
        self.slow_warnings: list[str] = []
        self.log_problems: list[str] = []

    def open(
        self,
        store: str | os.PathLike[str] | Store,
        options: SessionOptions,
        recorder: Recorder,
    ) -> Master:
        """Make the machines open a store.

        Parameters
        ----------
        store : path or Store
        options : SessionOptions
        recorder : Recorder
            Receives a record of each step.

        Raises
        ------
        CecError
            The options do not fit the store or the number of ranks, or a shard cannot be
            opened.
        """
        path = store.path if isinstance(store, Store) else as_path(store)
        source = store if isinstance(store, Store) else open_store(node_directory(path))
        manifest = source.manifest
        if self._gather is not None:
            self._places = self._gather(manifest.sufficient_machines)
        options = options.validate(manifest)
        machines = options.machines or ()
        if self._running is ExecutionMode.LOCKSTEP:
            check_ranks(len(self._places), machines, manifest.code.machines)
        elif self._running is ExecutionMode.ELASTIC and self.started is None:
            check_joining(options)
        self._warn_oversubscribed(options)
        self.schedule = Schedule(
            options.availability,
            machines,
            self._hub.roster,
            tick_seconds=options.tick_seconds,
            wait=options.wait,
            step=recorder.next_step,
            tick=recorder.next_tick,
            clock=self._hub.clock,
        )
        self.schedule.check_cancelled = self._check_cancelled
        self._flush_due = recorder.flush_due
        self.schedule.on_shortage = recorder.waiting
        if self._hub.roster is not None:
            self._hub.roster.on_shortage = recorder.waiting
        self._exit_stack.enter_context(limit_threads(options.threads or self._places[0].threads))
        master = self._open(path, source, options, recorder)
        self._exit_stack.callback(self._end, master)
        return master

    @property
    def started(self) -> list[Place] | None:
        """Places of the machines that were started; None if none were started."""
        return self._places[1:] or None

    @property
    def has_processes(self) -> bool:
        """Whether the machines are separate processes."""
        return self._running is not ExecutionMode.SERIAL

    @property
    def pids(self) -> dict[int, int]:
        """Process number of each machine of an elastic session on its host."""
        return self._hub.pids()

    @property
    def ended(self) -> bool:
        """Whether the session has ended."""
        return self._ended

    def make_step(self, product: Callable[[Any], NDArray[Any]], factor: Any) -> NDArray[Any]:
        """Make a product in the turn of this thread.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C was pressed. Machines that still compute take part in later steps.
        """
        if not self.has_processes:  # an interrupt cannot leave half a message
            return self.turns.run(product, factor)
        return self.turns.run(self._interrupts.run, product, factor)

    def _check_cancelled(self) -> None:
        if self._ended:
            raise InputError("this operator is closed: its machines have left")
        self._interrupts.check()
        self._flush_due()
        self.check_run()

    def refuse_steps(self) -> None:
        """Wait for the step that another thread is making, and refuse further ones.

        Threads that wait for their turn or for machines get an `InputError`.
        """
        self._ended = True
        if not self.turns.is_forked:  # a process forked from this one ends nothing
            self.turns.run(lambda: None)

    def _end(self, master: Master) -> None:
        """End the session, after the step that another thread is making."""
        self.refuse_steps()
        if not self.turns.is_forked:
            self.turns.run(master.close)

    def _open(
        self,
        path: Path,
        store: Store,
        options: SessionOptions,
        recorder: Recorder,
    ) -> Master:
        manifest, logs, machines = store.manifest, self._logs, options.machines or ()
        if self._running is ExecutionMode.ELASTIC:  # a machine may be on another host
            path, logs = path.absolute(), logs and logs.absolute()
        numbers, places = self._hub.assign_machines(machines, self._places)
        hosts = host_of_ranks(places, len(numbers) + 1)[1:]
        speeds = speeds_by_machine(options.speeds, numbers, hosts, manifest.code.machines)
        scaling = store.scaling()
        is_multi_node = len({place.node for place in self._places}) > 1
        threads = tuple(options.threads or place.threads for place in places)
        later = tuple(n for n in machines if n not in numbers)
        arguments = path, manifest, numbers, options.machine_options()
        opening = Opening(*arguments, threads, logs, is_multi_node, later)
        reports = self._hub.open(opening)
        error = opening_error(opening, reports, places)
        if error is not None and not self._can_continue(opening, reports):
            if isinstance(error, DamagedStoreError) and self._running is not ExecutionMode.ELASTIC:
                error = DamagedStoreError(f"{error}; {ELASTIC_CONTINUES}")
            self._hub.refuse(error)
            raise error
        emulation = emulation_of(options, opening.machines, reports, hosts)
        steps = StepPlanner.of(manifest, self.schedule, speeds, options.scheme, store.parts())
        # While rank 0 decodes, other processes wait: it may use all of its cores. In one process
        # BLAS uses them already, and threads of both would wait for each other.
        cores = self._places[0].own_cores if self.has_processes else 1
        planned = path, manifest, scaling, steps, recorder
        opened_store = OpenStore(*planned, opening.arithmetic, cores)
        master = Master(self._hub.admit(emulation), options, opened_store)
        at = zip(opening.machines, hosts, strict=True)
        self._hub.roster.host_names = {n: host for n, host in at if n}
        self.log_problems = [report.log_problem for report in reports if report.log_problem]
        if cache_problems := [report.cache_problem for report in reports if report.cache_problem]:
            more = f" (and {len(cache_problems) - 1} more)" if len(cache_problems) > 1 else ""
            self._warn([f"{cache_problems[0]}{more}"])
        header = run_header(opening, options, speeds, reports, emulation, places, self._library)
        recorder.header(header)
        if options.metrics is not None:
            self._exit_stack.enter_context(publish_metrics(options.metrics, recorder))
        return master

    def _can_continue(self, opening: Opening, reports: Sequence[OpenReport]) -> bool:
        """Whether steps are possible without the machines that could not open a store."""
        pairs = zip(opening.machines, reports, strict=True)
        openable = [n for n, report in pairs if n and report.shard and not report.problem]
        manifest = opening.manifest
        spare = manifest.placement.tolerated_losses(manifest.code.recovery, openable)
        return self._running is ExecutionMode.ELASTIC and spare >= 0

    def _warn_oversubscribed(self, options: SessionOptions) -> None:
        """Warn of ranks and threads that share cores, unless slow machines are emulated."""
        if self._running is not ExecutionMode.SERIAL and options.emulate_speeds is None:
            threads = [options.threads or place.threads for place in self._places]
            found = find_oversubscription(self._places, threads, detect_launcher())
            self._warn([finding.text for finding in found])

    def _warn(self, texts: Sequence[str]) -> None:
        self.slow_warnings += texts
        for text in texts:
            warnings.warn(text, SlowWarning, stacklevel=2)


def opening_error(
    opening: Opening, reports: Sequence[OpenReport], places: Sequence[Place]
) -> CecError | None:
    """Return the error of machines that cannot open a store; None if all can.

    Parameters
    ----------
    opening : Opening
    reports : sequence of OpenReport
        Reports of ranks from 1 on.
    places : sequence of Place
        Places of ranks from 0 on.
    """
    problems = [report.problem for report in reports if report.problem]
    if not problems:
        return None
    missing_shards = {
        machine: places[rank].host
        for rank, machine in enumerate(opening.machines, start=1)
        if reports[rank - 1].shard_missing and not opening.is_shard_missing(machine)
    }
    if "{host}" in str(opening.store):
        missing_shards = {}  # no node sees the files of another
    if missing_shards:
        path = str(opening.shard_file(min(missing_shards)).absolute())
        return InputError(missing_shards_message(path, places[0].host, missing_shards))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    remedy = ""
    if any(report.shard_missing for report in reports):
        remedy = "; --machines runs without that machine"
    kind: type[CecError] = MachineError
    if any(report.is_usage_error for report in reports):
        kind = InputError
    if any(report.damaged for report in reports):
        kind = DamagedStoreError
    return kind(f"{problems[0]}{more}{remedy}")


def emulation_of(
    options: SessionOptions,
    machines: Sequence[int],
    reports: Sequence[OpenReport],
    hosts: Sequence[str],
) -> Emulation | None:
    """Return the emulated speeds, with a base that was given or is measured.

    Parameters
    ----------
    options : SessionOptions
    machines, hosts : sequence
        The machine of each rank from 1 on, and where it runs.
    reports : sequence of OpenReport
        Reports of these ranks.
    """
    if options.emulate_speeds is None:
        return None
    base = options.emulate_base
    if base is None:
        rates = [report.rate for report in reports]
        base = fit_base(options.emulate_speeds, machines, rates, hosts)
    return Emulation(
        options.emulate_speeds,
        base,
        options.emulate_noise,
        options.emulate_changes,
        options.seed,
    )


def check_ranks(size: int, machines: tuple[int, ...], total: int) -> None:
    """Raise unless there is one rank for the master and one for each machine, of all of a store."""
    problem = rank_count_problem(size, machines, total, detect_launcher())
    if problem:
        raise InputError(problem)


def check_joining(options: SessionOptions) -> None:
    """Raise for options that need machines from the beginning."""
    if options.emulate_speeds is not None and options.emulate_base is None:
        raise InputError(
            "emulated speeds need a base (--emulate-base) if all machines join later, because they "
            "cannot be measured together"
        )
    if isinstance(options.speeds, Mapping):
        raise InputError(
            "speeds of hosts cannot be used if all machines join later: expected a speed for each "
            "machine, or learn"
        )
