"""From a store and some ranks to a master: opens the shards, sets up both ends, serves.

All of a session's options are plain values that every rank holds alike.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import cec_mpi
from cec_mpi.availability import everyone
from cec_mpi.core.planner import Planner
from cec_mpi.errors import CecError, DamagedStoreError, InputError, MachineError
from cec_mpi.records import Recorder
from cec_mpi.runtime.elastic import Schedule
from cec_mpi.runtime.emulation import Emulation
from cec_mpi.runtime.exchange import MasterEnd
from cec_mpi.runtime.launch import (
    Place,
    ending_the_job,
    library_name,
    limit_threads,
    on_master,
    place_of_ranks,
)
from cec_mpi.runtime.local import LocalMasterEnd
from cec_mpi.runtime.logs import log_file
from cec_mpi.runtime.machine import Machine, serve
from cec_mpi.runtime.master import Master
from cec_mpi.runtime.options import SessionOptions
from cec_mpi.store.manifest import Manifest
from cec_mpi.store.reader import Shard, Store, open_store
from cec_mpi.store.staging import remembered_stage, staged_file

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["check_ranks", "open_operator", "serial_session", "session"]

log = logging.getLogger(__name__)


@contextmanager
def open_operator(
    store: str | os.PathLike[str],
    comm: MPI.Intracomm | None,
    *,
    recorder: Recorder | None = None,
    **options: Any,
) -> Iterator[Master | None]:
    """Collective: y = X w on the ranks of `comm`, as a context manager.

    Parameters
    ----------
    store : path
        A store that `cec_mpi.encode` made, visible to all ranks.
    comm : mpi4py.MPI.Intracomm or None
        The master and one rank per machine: N + 1 ranks. With None all machines are in
        this process.
    recorder : Recorder, optional
        Receives a record of each step.
    **options
        The attributes of `SessionOptions`.

    Yields
    ------
    Master or None
        On rank 0 an object with ``shape``, ``dtype`` and ``matvec(w)``. The other ranks
        serve inside the ``with`` line, and get None when rank 0 has left its block.

    Raises
    ------
    CecError
        On all ranks alike: the options do not fit the store or the number of ranks, or a
        shard cannot be opened.
    """
    try:
        chosen = SessionOptions(**options)
    except TypeError as error:
        raise InputError(str(error).replace("SessionOptions.__init__()", "open_operator")) from None
    recorder = recorder or Recorder()
    if comm is None:
        with serial_session(store, chosen, recorder) as master:
            yield master
    else:
        with session(comm, store, chosen, recorder) as (master, _):
            yield master


@contextmanager
def serial_session(
    store: str | os.PathLike[str], options: SessionOptions, recorder: Recorder
) -> Iterator[Master]:
    """A master with all machines in this process."""
    opened = open_store(store)
    manifest = opened.manifest
    options = replace(options.checked(manifest), staged=_staged(options, opened.path))
    cores = len(os.sched_getaffinity(0))
    place = Place(socket.gethostname(), 1, cores, cores)
    try:
        machines = [
            Machine(n, _open_shard(opened, n, options, options.staged or ""))
            for n in options.machines or ()
        ]
    except DamagedStoreError as error:
        raise MachineError(f"a machine cannot start: {error}") from None
    threads = options.threads or place.threads
    with limit_threads(threads):
        emulation = None
        if options.emulate_speeds is not None:
            values = sum(options.emulate_speeds[machine.number - 1] for machine in machines)
            base = options.emulate_base or machines[0].measure_rate() / (2 * values)
            emulation = _emulation(options, base)
        for machine in machines:
            machine.emulation = emulation
        answers = manifest.code.recovery * manifest.rows_per_shard
        end = LocalMasterEnd(machines, manifest.code.machines, answers, np.dtype(manifest.dtype))
        copies = [m.number for m in machines if m.shard_path.parent != opened.path]
        recorder.header(_header(manifest, options, emulation, [place], [threads], copies, "none"))
        yield _master(manifest, end, options, recorder)


@contextmanager
def session(
    comm: MPI.Intracomm,
    store: str | os.PathLike[str],
    options: SessionOptions,
    recorder: Recorder,
    log_directory: Path | None = None,
) -> Iterator[tuple[Master | None, int]]:
    """Collective: the master on rank 0, and the serving loop on the others.

    Yields
    ------
    master : Master or None
    code : int
        On the machines, after serving: the exit code that the master left with.
    """
    from cec_mpi.runtime.collective import (
        CollectiveMachineEnd,
        CollectiveMasterEnd,
        check_message_sizes,
    )

    def prepare() -> tuple[Manifest, SessionOptions]:
        manifest = open_store(store).manifest
        checked = options.checked(manifest)
        check_ranks(comm.size, checked.machines or (), manifest.code.machines)
        check_message_sizes(manifest.columns, manifest.code.recovery * manifest.rows_per_shard)
        return manifest, replace(checked, staged=_staged(checked, Path(store)))

    manifest, options = on_master(comm, prepare)
    machines = list(options.machines or ())
    places = place_of_ranks(comm)
    threads = [options.threads or place.threads for place in places]
    comm = comm.Dup()
    try:
        number = machines[comm.rank - 1] if comm.rank else 0
        with (
            limit_threads(threads[comm.rank]),
            _machine_log(comm, log_directory, number),
        ):
            machine = _open_machine(comm, Store(Path(store), manifest), number, options)
            own = machine is None or machine.shard_path.parent == Path(store)
            copies = [n for n in comm.allgather(0 if own else number) if n]
            emulation = _measure_emulation(comm, options, places, machine)
            dtype = np.dtype(manifest.dtype)
            if machine is not None:
                machine.emulation = emulation
                with ending_the_job(comm):
                    machine_end = CollectiveMachineEnd(comm, number, manifest.columns, dtype)
                    code = serve(machine, machine_end)
                yield None, code
                return
            answers = manifest.code.recovery * manifest.rows_per_shard
            with ending_the_job(comm):
                end = CollectiveMasterEnd(
                    comm, machines, manifest.code.machines, manifest.columns, answers, dtype
                )
            with _stopping(end):
                library = library_name()
                recorder.header(
                    _header(manifest, options, emulation, places, threads, copies, library)
                )
                master = _master(manifest, end, options, recorder)
                try:
                    yield master, 0
                finally:
                    master.close()
    finally:
        comm.Free()


@contextmanager
def _stopping(end: MasterEnd) -> Iterator[None]:
    """Whatever happens to the master, the machines are told to leave, and with what code."""
    try:
        yield
    except CecError as error:
        end.stop(error.exit_code)
        raise
    except BaseException:
        end.stop(1)
        raise
    end.stop(0)


def check_ranks(size: int, machines: tuple[int, ...], total: int) -> None:
    """Refuse another number of ranks than one for the master and one for each machine."""
    if size == len(machines) + 1:
        return
    which = f"{len(machines)} of its {total}" if len(machines) < total else f"its {total}"
    raise InputError(
        f"{size} ranks were started: the store needs {len(machines) + 1}, one for the master "
        f"and one for each of {which} machines (mpirun -n {len(machines) + 1})"
    )


@contextmanager
def _machine_log(comm: MPI.Intracomm, directory: Path | None, number: int) -> Iterator[None]:
    """Collective: the log of each machine, or all ranks raise which cannot be written."""
    path = directory / f"machine-{number:04d}.log" if directory and number else None
    problem = ""
    with ExitStack() as stack:
        try:
            stack.enter_context(log_file(path))
        except OSError as error:
            problem = f"the log of machine {number}, {path}: {error.strerror}"
        _all_good(comm, problem)
        yield


def _all_good(comm: MPI.Intracomm, problem: str) -> None:
    """Collective: raise the first problem on all ranks; an empty text is none."""
    problems = [text for text in comm.allgather(problem) if text]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise MachineError(problems[0] + more)


def _staged(options: SessionOptions, store: Path) -> str:
    return remembered_stage(store) or "" if options.staged is None else options.staged


def _open_shard(store: Store, number: int, options: SessionOptions, staged: str) -> Shard:
    copy = staged_file(staged, store.manifest, number) if staged else None
    log.info("machine %d reads %s", number, copy or store.path)
    return store.open_shard(number, options.shards, options.verify, copy)


def _open_machine(
    comm: MPI.Intracomm, store: Store, number: int, options: SessionOptions
) -> Machine | None:
    """Collective: every machine opens its shard, or all ranks raise what went wrong."""
    machine, problem = None, ""
    try:
        if number:
            machine = Machine(number, _open_shard(store, number, options, options.staged or ""))
            log.info("machine %d on %s, process %d", number, socket.gethostname(), os.getpid())
    except (CecError, OSError) as error:
        log.exception("machine %d cannot start", number)
        problem = f"machine {number} on {socket.gethostname()} cannot start: {error}"
    _all_good(comm, problem)
    return machine


def _measure_emulation(
    comm: MPI.Intracomm, options: SessionOptions, places: list[Place], machine: Machine | None
) -> Emulation | None:
    """Collective: the emulation, with its base measured on all machines at once."""
    if options.emulate_speeds is None:
        return None
    base = options.emulate_base
    if base is None:
        comm.Barrier()
        rate = machine.measure_rate() if machine is not None else 0.0
        value = options.emulate_speeds[machine.number - 1] if machine is not None else 0.0
        nodes: dict[str, tuple[float, float]] = {}
        for place, (one_rate, one_value) in zip(places, comm.allgather((rate, value)), strict=True):
            rates, values = nodes.get(place.host, (0.0, 0.0))
            nodes[place.host] = (rates + one_rate, values + one_value)
        base = min(rates / (2 * values) for rates, values in nodes.values() if values)
    return _emulation(options, base)


def _emulation(options: SessionOptions, base: float) -> Emulation:
    return Emulation(
        options.emulate_speeds or (),
        base,
        options.emulate_noise,
        options.emulate_changes,
        options.seed,
    )


def _master(
    manifest: Manifest, end: MasterEnd, options: SessionOptions, recorder: Recorder
) -> Master:
    code = manifest.code
    schedule = Schedule(
        options.availability or everyone(code.machines),
        options.machines or (),
        code.recovery,
        tick_seconds=options.tick_seconds,
        wait=options.wait,
    )
    planner = Planner(code.recovery, manifest.rows_per_shard, options.scheme)
    return Master(manifest, end, planner, schedule, options.speeds or (), recorder)


def _header(
    manifest: Manifest,
    options: SessionOptions,
    emulation: Emulation | None,
    places: list[Place],
    threads: list[int],
    copies: list[int],
    library: str,
) -> dict[str, Any]:
    import mpi4py
    import scipy

    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "cec_mpi": cec_mpi.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "mpi4py": mpi4py.__version__,
        },
        "mpi_library": library,
        "hosts": [place.host for place in places],
        "threads": threads,
        "rows": manifest.rows,
        "columns": manifest.columns,
        "rows_per_shard": manifest.rows_per_shard,
        "dtype": manifest.dtype,
        "machines": manifest.code.machines,
        "recovery": manifest.code.recovery,
        "code": manifest.code.family,
        "taking_part": options.machines,
        "scheme": options.scheme,
        "shards": options.shards,
        "verify": options.verify,
        "staged": options.staged or None,
        "machines_with_copies": copies,
        "speeds": options.speeds,
        "emulation": None if emulation is None else asdict(emulation),
    }
