"""The machines gathered around a master, and the stores that they open for it."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cec_mpi.core.learning import SpeedEstimator
from cec_mpi.core.planner import Planner, Scheme
from cec_mpi.core.speeds import GivenSpeeds, Speeds
from cec_mpi.errors import InfeasibleError, InputError, MachineError
from cec_mpi.records import Recorder
from cec_mpi.runtime.elastic import Schedule
from cec_mpi.runtime.emulation import Emulation, fit_base
from cec_mpi.runtime.exchange import Hub, Opened, Opening
from cec_mpi.runtime.header import run_header
from cec_mpi.runtime.launch import Place, library_name, limit_threads, place_of_ranks
from cec_mpi.runtime.leaving import ending_the_job, raised_together
from cec_mpi.runtime.local import LocalHub
from cec_mpi.runtime.master import Master
from cec_mpi.runtime.options import SessionOptions
from cec_mpi.runtime.serving import serve
from cec_mpi.store.manifest import Manifest
from cec_mpi.store.reader import open_store
from cec_mpi.store.staging import remembered_stage

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Session", "check_ranks", "gathered"]

log = logging.getLogger(__name__)

_PRINTING_SECONDS = 0.1  # for rank 0: under `python -m mpi4py` the first that raises ends all

_serving: list[Any] = []  # groups of processes that are gathered around this one


class Session:
    """The master's side of machines that serve it; lives on rank 0.

    Parameters
    ----------
    hub : Hub
        The wire.
    places : list of Place
        Where each rank runs, the master first; one place alone when all are here.
    library : str
        Name of the MPI library, for the records.
    kept : ExitStack
        What holds until the session ends.
    logs : Path, optional
        Directory for a log of each machine.

    Attributes
    ----------
    schedule : Schedule
        Who is available at each step, whichever store it is of.
    """

    schedule: Schedule

    def __init__(
        self,
        hub: Hub,
        places: list[Place],
        library: str,
        kept: ExitStack,
        logs: Path | None = None,
    ) -> None:
        self._kept = kept
        self._hub = hub
        self._places = places
        self._library = library
        self._logs = logs
        self._options = SessionOptions()
        self._machines: tuple[int, ...] = ()

    def open(
        self, store: str | os.PathLike[str], options: SessionOptions, recorder: Recorder
    ) -> Master:
        """Have the machines open their first store.

        Parameters
        ----------
        store : path
        options : SessionOptions
        recorder : Recorder
            Receives a record of each step, of further stores too.

        Raises
        ------
        CecError
            The options do not fit the store or the number of ranks, or a shard cannot be
            opened.
        """
        path = Path(store)
        manifest = open_store(path).manifest
        options = options.checked(manifest)
        machines = options.machines or ()
        if len(self._places) > 1 or self._library:
            check_ranks(len(self._places), machines, manifest.code.machines)
        self.schedule = Schedule(
            options.availability,
            machines,
            tick_seconds=options.tick_seconds,
            wait=options.wait,
            step=recorder.next_step,
            tick=recorder.next_tick,
        )
        self._recorder = recorder
        self._stores = 0
        self._machines = machines
        self._options = options
        self._kept.enter_context(limit_threads(options.threads or self._places[0].threads))
        master = self._open(path, manifest, options, self._logs)
        self._kept.callback(master.close)
        return master

    @contextmanager
    def open_another(
        self,
        store: str | os.PathLike[str],
        speeds: Sequence[float] | Literal["learn"],
        scheme: Scheme,
    ) -> Iterator[Master]:
        """A further store, served by the same machines until the end of the ``with``.

        Machines with numbers that it does not have take no part in it.

        Parameters
        ----------
        store : path
        speeds, scheme
            As in `SessionOptions`.

        Raises
        ------
        CecError
            As `open`.
        """
        path = Path(store)
        manifest = open_store(path).manifest
        total = manifest.code.machines
        machines = tuple(n for n in self._machines if n <= total)
        if len(machines) < manifest.code.recovery:
            raise InfeasibleError(
                f"{len(machines)} machines serve {path}: a step needs {manifest.code.recovery}"
            )
        emulated = self._options.emulate_speeds
        if emulated is not None:
            emulated = (emulated + (1.0,) * total)[:total]
        changes = tuple(c for c in self._options.emulate_changes if c.machine <= total)
        options = replace(
            self._options,
            availability=None,
            speeds=speeds,
            scheme=scheme,
            machines=machines,
            staged=None,
            emulate_speeds=emulated,
            emulate_changes=changes,
        )
        master = self._open(path, manifest, options.checked(manifest))
        try:
            yield master
        finally:
            master.close()

    def _open(
        self,
        path: Path,
        manifest: Manifest,
        options: SessionOptions,
        logs: Path | None = None,
    ) -> Master:
        if options.staged is None:
            options = replace(options, staged=remembered_stage(path) or "")
        threads = [options.threads or place.threads for place in self._places]
        numbers = (n if n in (options.machines or ()) else 0 for n in self._machines)
        opening = Opening(
            path,
            manifest,
            tuple(numbers),
            replace(options, availability=None),
            tuple(threads),
            logs,
        )
        opened = self._hub.open(opening)
        problems = [each.problem for each in opened if each.problem]
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            error = MachineError(problems[0] + more)
            self._hub.refuse(error)
            raise error
        emulation = self._emulation(opening, opened)
        end = self._hub.admit(emulation)
        number, self._stores = self._stores, self._stores + 1
        if number == 0:
            copies = [n for n, each in zip(opening.machines, opened, strict=True) if each.copy]
            self._recorder.header(
                run_header(opening, emulation, self._places, copies, self._library)
            )
        code, rows = manifest.code, manifest.rows_per_shard
        speeds: Speeds
        if not isinstance(options.speeds, str):
            speeds = GivenSpeeds(options.speeds, code.recovery, rows)
        else:
            speeds = SpeedEstimator(code.machines, code.recovery, rows)
        planner = Planner(code.recovery, rows, options.scheme)
        return Master(manifest, end, planner, speeds, self.schedule, self._recorder, number)

    def _emulation(self, opening: Opening, opened: list[Opened]) -> Emulation | None:
        options = opening.options
        if options.emulate_speeds is None:
            return None
        base = options.emulate_base
        if base is None:
            hosts = [place.host for place in self._places[1:]]
            base = fit_base(
                options.emulate_speeds,
                opening.machines,
                [each.rate for each in opened],
                hosts or [self._places[0].host] * len(opened),
            )
        return Emulation(
            options.emulate_speeds,
            base,
            options.emulate_noise,
            options.emulate_changes,
            options.seed,
        )


@contextmanager
def gathered(comm: MPI.Intracomm | None, logs: Path | None = None) -> Iterator[Session | None]:
    """Collective: machines that serve a master on rank 0, until it leaves.

    However rank 0 leaves, all ranks leave: with the same exception, if it is by one.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        The master and one rank per machine; None for all machines in this process.
    logs : Path, optional
        Directory for a log of each machine.

    Yields
    ------
    Session or None
        None on the machines, when rank 0 has left.

    Raises
    ------
    InputError
        The processes of `comm` serve already.
    """
    if comm is None:
        cores = len(os.sched_getaffinity(0))
        place = Place(socket.gethostname(), 1, cores, cores)
        with ExitStack() as kept:
            yield Session(LocalHub(), [place], "", kept)  # what it opened ends with it
        return
    with _once(comm), _duplicate(comm) as own:
        yield from _take_part(own, logs)


def _take_part(comm: MPI.Intracomm, logs: Path | None) -> Iterator[Session | None]:
    from cec_mpi.runtime.collective import CollectiveHub, CollectiveMachineEnd

    places = place_of_ranks(comm)
    if comm.rank:
        with ending_the_job(comm, known=()):
            error = serve(comm.rank, CollectiveMachineEnd(comm))
        if error is not None:
            time.sleep(_PRINTING_SECONDS)
            raise raised_together(comm, error)
        yield None
        return
    hub = CollectiveHub(comm)
    try:
        with ExitStack() as kept:
            yield Session(hub, places, library_name(), kept, logs)
    except BaseException as error:
        hub.stop(error)
        raised_together(comm, error)
        raise
    hub.stop(None)


@contextmanager
def _once(comm: MPI.Intracomm) -> Iterator[None]:
    """Refuse processes that serve already: they would wait for ever."""
    group = comm.Get_group()
    try:
        for other in _serving:
            common = type(group).Intersection(group, other)
            size = common.size
            common.Free()
            if size > 1:
                raise raised_together(
                    comm,
                    InputError(
                        "the machines of this communicator serve another operator: open a "
                        "further store with X.open(store)"
                    ),
                )
        _serving.append(group)
        try:
            yield
        finally:
            _serving.remove(group)
    finally:
        group.Free()


@contextmanager
def _duplicate(comm: MPI.Intracomm) -> Iterator[MPI.Intracomm]:
    own = comm.Dup()
    try:
        yield own
    finally:
        own.Free()


def check_ranks(size: int, machines: tuple[int, ...], total: int) -> None:
    """Refuse another number of ranks than one for the master and one for each machine."""
    if size == len(machines) + 1:
        return
    which = f"{len(machines)} of its {total}" if len(machines) < total else f"its {total}"
    started = "1 rank was" if size == 1 else f"{size} ranks were"
    raise InputError(
        f"{started} started: the store needs {len(machines) + 1}, one for the master "
        f"and one for each of {which} machines (mpirun -n {len(machines) + 1})"
    )
