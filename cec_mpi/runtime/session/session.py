"""A session: it opens a store on the machines of a run, and lets threads compute products."""

from __future__ import annotations

import os
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
from cec_mpi.runtime.master.planning import ServedStore, StepPlanner
from cec_mpi.runtime.master.schedule import Schedule
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.options.shards import speeds_by_machine
from cec_mpi.runtime.processes.launcher import detect_launcher
from cec_mpi.runtime.processes.resources import (
    ProcessInfo,
    find_oversubscription,
    limit_threads,
    missing_shards_message,
    rank_count_problem,
)
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.header import hosts_of_ranks, run_header
from cec_mpi.runtime.session.interrupts import InterruptGuard
from cec_mpi.runtime.session.locks import FairLock
from cec_mpi.runtime.session.metrics import publish_metrics
from cec_mpi.runtime.wire.orders import Opening, OpenReport
from cec_mpi.runtime.wire.protocol import Hub
from cec_mpi.store.files.paths import as_path, expand_host
from cec_mpi.store.reader import Store, open_store
from cec_mpi.text import warn_caller


class ExecutionMode(Enum):
    """How the machines of a session run."""

    SERIAL = "all in the process of the master"
    LOCKSTEP = "ranks of MPI with collective steps"
    ELASTIC = "processes that join over sockets, and may be late, be lost or leave"


class Session:
    """Opens a store on the machines of a run, and runs the steps that threads request, on rank 0.

    Parameters
    ----------
    hub : Hub
        Connects the master with the machines.
    processes : list of ProcessInfo
        Process of each rank, the master first; only the master if no other has machines yet.
    exit_stack : ExitStack
        Closed at the end of the session.
    library : str
        Name of the MPI library, for the records.
    logs : Path, optional
        Directory for a log of each machine.
    lock : FairLock, optional
        Acquired by each thread that uses the session.
    mode : ExecutionMode
    await_processes : callable, optional
        Takes the number of machines that suffices, waits for started machines, and returns the
        processes of all ranks.

    Attributes
    ----------
    schedule : Schedule
    lock : FairLock
    check_limits : callable
        Called before each step and while a step waits; an exception ends the step.
    slow_warnings : list of str
        Text of each `SlowWarning` that was issued when the store was opened.
    log_problems : list of str
        Reasons why machines have no logs.
    """

    schedule: Schedule

    def __init__(
        self,
        hub: Hub,
        processes: list[ProcessInfo],
        exit_stack: ExitStack,
        *,
        library: str = "",
        logs: Path | None = None,
        lock: FairLock | None = None,
        mode: ExecutionMode = ExecutionMode.SERIAL,
        await_processes: Callable[[int], list[ProcessInfo]] | None = None,
    ) -> None:
        self.lock = lock or FairLock()
        self.check_limits: Callable[[], None] = lambda: None
        self._interrupt_guard = InterruptGuard()
        self._has_ended = False
        self._exit_stack = exit_stack
        self._hub = hub
        self._processes = processes
        self._library = library
        self._mode = mode
        self._await_processes = await_processes
        self._flush_records: Callable[[], None] = lambda: None
        self._logs = logs
        self.slow_warnings: list[str] = []
        self.log_problems: list[str] = []

    def open(
        self,
        store: str | os.PathLike[str] | Store,
        options: SessionOptions,
        recorder: Recorder,
    ) -> Master:
        """Open a store on the machines, and return its master.

        Parameters
        ----------
        store : path or Store
        options : SessionOptions
        recorder : Recorder
            Receives a record of each step.

        Raises
        ------
        CecError
            The options do not suit the store or the number of ranks, or a shard cannot be opened.
        """
        path = store.path if isinstance(store, Store) else as_path(store)
        store = store if isinstance(store, Store) else open_store(expand_host(path))
        manifest = store.manifest
        if self._await_processes is not None:
            self._processes = self._await_processes(manifest.sufficient_machines)
        options = options.validate(manifest)
        machines = options.machines or ()
        if self._mode is ExecutionMode.LOCKSTEP:
            size, launcher = len(self._processes), detect_launcher()
            problem = rank_count_problem(size, machines, manifest.code.machines, launcher)
            if problem:
                raise InputError(problem)
        elif self._mode is ExecutionMode.ELASTIC and len(self._processes) == 1:
            check_joining(options)
        self._warn_of_oversubscription(options)
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
        self._flush_records = recorder.flush_if_due
        self.schedule.on_shortage = self._hub.roster.on_shortage = recorder.record_wait
        self._exit_stack.enter_context(limit_threads(options.threads or self._processes[0].threads))
        master = self._make_master(path, store, options, recorder)
        self._exit_stack.callback(self.refuse_steps)
        return master

    @property
    def has_processes(self) -> bool:
        """Whether the machines are separate processes."""
        return self._mode is not ExecutionMode.SERIAL

    @property
    def pids(self) -> dict[int, int]:
        """Process ID of each machine of an elastic session on its host."""
        return self._hub.pids()

    def run_step(self, product: Callable[[Any], NDArray[Any]], operand: Any) -> NDArray[Any]:
        """Compute a product while this thread holds the lock.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C was pressed. Machines that still compute take part in later steps.
        """
        if not self.has_processes:  # no message can be incomplete after an interrupt
            return self.lock.run(product, operand)
        return self.lock.run(self._interrupt_guard.run, product, operand)

    def _check_cancelled(self) -> None:
        if self._has_ended:
            raise InputError("this operator is closed: its machines have left")
        self._interrupt_guard.check()
        self._flush_records()
        self.check_limits()

    def refuse_steps(self) -> None:
        """Refuse further steps, and wait for a step of another thread to end.

        Threads that wait for the lock or for machines get an `InputError`.
        """
        self._has_ended = True
        if not self.lock.is_forked:  # a forked process must not end the session
            self.lock.run(lambda: None)

    def _make_master(
        self,
        path: Path,
        store: Store,
        options: SessionOptions,
        recorder: Recorder,
    ) -> Master:
        """Make the machines open the store, and return its master."""
        manifest, logs, machines = store.manifest, self._logs, options.machines or ()
        if self._mode is ExecutionMode.ELASTIC:  # machines may have another working directory
            path, logs = path.absolute(), logs and logs.absolute()
        processes = self._processes
        machine_of_rank = self._hub.assign_machines(machines, len(processes) - 1)
        hosts = hosts_of_ranks(processes, len(machine_of_rank) + 1)[1:]
        speeds = speeds_by_machine(options.speeds, machine_of_rank, hosts, manifest.code.machines)
        scaling = store.scaling()
        is_multi_node = len({process.node for process in processes}) > 1
        threads = tuple(options.threads or process.threads for process in processes)
        unassigned_machines = tuple(n for n in machines if n not in machine_of_rank)
        opening = Opening(
            path,
            manifest,
            machine_of_rank,
            options.machine_options(),
            threads,
            logs,
            is_multi_node,
            unassigned_machines,
        )
        reports = self._hub.open(opening)
        error = opening_error(opening, reports, processes)
        if error is not None and not self._can_continue(opening, reports):
            if isinstance(error, DamagedStoreError) and self._mode is not ExecutionMode.ELASTIC:
                error = DamagedStoreError(f"{error}; {ELASTIC_CONTINUES}")
            self._hub.refuse(error)
            raise error
        emulation = make_emulation(options, opening.machines, reports, hosts)
        planner = StepPlanner.for_store(
            manifest, self.schedule, speeds, options.scheme, store.parts()
        )
        # Rank 0 decodes with all of its cores, because other processes are idle then. If
        # all machines are in one process, decoding threads would compete with those of BLAS.
        threads_for_decoding = processes[0].own_cores if self.has_processes else 1
        served_store = ServedStore(
            manifest, scaling, planner, recorder, opening.arithmetic, threads_for_decoding
        )
        master = Master(self._hub.admit(emulation), options, served_store)
        hosts_of_machines = zip(opening.machines, hosts, strict=True)
        self._hub.roster.host_names = {n: host for n, host in hosts_of_machines if n}
        self.log_problems = [report.log_problem for report in reports if report.log_problem]
        if cache_problems := [report.cache_problem for report in reports if report.cache_problem]:
            self._warn([_summarise(cache_problems)])
        header = run_header(opening, options, speeds, reports, emulation, processes, self._library)
        recorder.set_header(header)
        if options.metrics is not None:
            self._exit_stack.enter_context(publish_metrics(options.metrics, recorder))
        return master

    def _can_continue(self, opening: Opening, reports: Sequence[OpenReport]) -> bool:
        """Return whether steps are possible without the machines that could not open the store."""
        pairs = zip(opening.machines, reports, strict=True)
        openable = [n for n, report in pairs if n and report.shard_path and not report.problem]
        manifest = opening.manifest
        is_feasible = manifest.placement.tolerated_losses(manifest.code.recovery, openable) >= 0
        return self._mode is ExecutionMode.ELASTIC and is_feasible

    def _warn_of_oversubscription(self, options: SessionOptions) -> None:
        """Warn of ranks and threads that share cores, unless slow machines are emulated."""
        if self.has_processes and options.emulate_speeds is None:
            threads = [options.threads or process.threads for process in self._processes]
            findings = find_oversubscription(self._processes, threads, detect_launcher())
            self._warn([finding.text for finding in findings])

    def _warn(self, texts: Sequence[str]) -> None:
        self.slow_warnings += texts
        for text in texts:
            warn_caller(text, SlowWarning)


def _summarise(problems: Sequence[str]) -> str:
    """Return the first problem, and the number of others."""
    return problems[0] + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")


def opening_error(
    opening: Opening, reports: Sequence[OpenReport], processes: Sequence[ProcessInfo]
) -> CecError | None:
    """Return the error of machines that could not open the store; None if all could.

    Parameters
    ----------
    opening : Opening
    reports : sequence of OpenReport
        Reports of ranks from 1 on.
    processes : sequence of ProcessInfo
        Processes of ranks from 0 on.
    """
    problems = [report.problem for report in reports if report.problem]
    if not problems:
        return None
    missing_shards = {
        machine: processes[rank].host_name
        for rank, machine in enumerate(opening.machines, start=1)
        if reports[rank - 1].is_shard_missing and not opening.is_shard_missing(machine)
    }
    if "{host}" in str(opening.store):
        missing_shards = {}  # each node has its own directory
    if missing_shards:
        path = str(opening.shard_file(min(missing_shards)).absolute())
        return InputError(missing_shards_message(path, processes[0].host_name, missing_shards))
    remedy = ""
    if any(report.is_shard_missing for report in reports):
        remedy = "; --machines runs without that machine"
    error_type: type[CecError] = MachineError
    if any(report.is_usage_error for report in reports):
        error_type = InputError
    if any(report.is_damaged for report in reports):
        error_type = DamagedStoreError
    return error_type(f"{_summarise(problems)}{remedy}")


def make_emulation(
    options: SessionOptions,
    machines: Sequence[int],
    reports: Sequence[OpenReport],
    hosts: Sequence[str],
) -> Emulation | None:
    """Return the emulated speeds; their base is an option, or is measured.

    Parameters
    ----------
    options : SessionOptions
    machines, hosts : sequence
        The machine and the host of each rank from 1 on.
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


def check_joining(options: SessionOptions) -> None:
    """Raise if an option needs machines that start with the run."""
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
