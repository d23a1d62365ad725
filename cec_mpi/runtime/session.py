"""The machines gathered around a master, and the stores that they open for it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from cec_mpi.core.learning import SpeedEstimator
from cec_mpi.core.planner import Planner, Scheme
from cec_mpi.core.speeds import GivenSpeeds, Speeds
from cec_mpi.errors import CecError, InfeasibleError, InputError, MachineError, SlowWarning
from cec_mpi.records import Recorder
from cec_mpi.runtime.elastic import Schedule
from cec_mpi.runtime.emulation import Emulation, fit_base
from cec_mpi.runtime.exchange import Hub, Opened, Opening
from cec_mpi.runtime.guards import find_crowds, unseen_shards, wrong_ranks
from cec_mpi.runtime.header import run_header
from cec_mpi.runtime.launchers import detect_launcher
from cec_mpi.runtime.lockstep import LockstepMaster
from cec_mpi.runtime.master import Master
from cec_mpi.runtime.options import SessionOptions, SpeedsOption
from cec_mpi.runtime.placement import host_of_ranks, speeds_by_host
from cec_mpi.runtime.places import Place, limit_threads
from cec_mpi.store.manifest import Manifest
from cec_mpi.store.reader import open_store
from cec_mpi.store.staging import node_directory, remembered_stage

__all__ = ["Session", "check_ranks"]


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
    make : callable
        Makes the master of a store, as `LockstepMaster` does, on what `hub` gives.

    Attributes
    ----------
    schedule : Schedule
        Who is available at each step, whichever store it is of.
    slow : list of str
        What was warned of when it began: the run is right, and slower than it could be.
    """

    schedule: Schedule

    def __init__(
        self,
        hub: Hub,
        places: list[Place],
        library: str,
        kept: ExitStack,
        logs: Path | None = None,
        make: Callable[..., Master] = LockstepMaster,
    ) -> None:
        self._make = make
        self._kept = kept
        self._hub = hub
        self._places = places
        self._library = library
        self._logs = logs
        self._options = SessionOptions()
        self._machines: tuple[int, ...] = ()
        self.slow: list[str] = []

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
        manifest = open_store(node_directory(path)).manifest
        options = options.checked(manifest)
        machines = options.machines or ()
        if len(self._places) > 1 or self._library:
            check_ranks(len(self._places), machines, manifest.code.machines, options.spares)
            self._warn(options)
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
        speeds: SpeedsOption,
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
        manifest = open_store(node_directory(path)).manifest
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
        stragglers = min(self._options.stragglers, total - manifest.code.recovery)
        options = replace(
            self._options,
            stragglers=stragglers,
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
            options = replace(options, staged=remembered_stage(node_directory(path)) or "")
        threads = self._threads(options)
        numbers = [n if n in (options.machines or ()) else 0 for n in self._machines]
        numbers += [0] * options.spares
        hosts = host_of_ranks(self._places, len(numbers) + 1)[1:]
        speeds = options.speeds
        if isinstance(speeds, Mapping):
            speeds = speeds_by_host(speeds, numbers, hosts, manifest.code.machines)
            options = replace(options, speeds=speeds)
        opening = Opening(
            path,
            manifest,
            tuple(numbers),
            replace(options, availability=None),
            tuple(threads),
            logs,
        )
        opened = self._hub.open(opening)
        error = self._problem(opening, opened)
        if error is not None:
            self._hub.refuse(error)
            raise error
        opened = opened[: len(opening.machines)]  # without processes that were started since
        emulation = self._emulation(opening, opened, hosts)
        end = self._hub.admit(emulation)
        number, self._stores = self._stores, self._stores + 1
        if number == 0:
            self._recorder.header(
                run_header(opening, opened, emulation, self._places, self._library)
            )
        code, rows = manifest.code, manifest.rows_per_shard
        rates: Speeds
        if not isinstance(speeds, str):
            rates = GivenSpeeds(speeds, code.recovery, rows)
        else:
            rates = SpeedEstimator(code.machines, code.recovery, rows)
        planner = Planner(code.recovery, rows, options.scheme)
        given = manifest, planner, rates, self.schedule, self._recorder, number
        return self._make(end, options, *given)

    def _threads(self, options: SessionOptions) -> list[int]:
        """BLAS threads of each rank."""
        return [options.threads or place.threads for place in self._places]

    def _warn(self, options: SessionOptions) -> None:
        """Warn of ranks and threads that share cores, unless slow machines are emulated."""
        if options.emulate_speeds is None:
            found = find_crowds(self._places, self._threads(options), detect_launcher())
            self.slow = [finding.text for finding in found]
        for text in self.slow:
            warnings.warn(text, SlowWarning, stacklevel=2)

    def _problem(self, opening: Opening, opened: list[Opened]) -> CecError | None:
        """Why machines cannot open a store, if some cannot."""
        problems = [each.problem for each in opened if each.problem]
        if not problems:
            return None
        unseen = {
            machine: self._places[rank].host
            for rank, machine in enumerate(opening.machines, start=1)
            if opened[rank - 1].unseen and opening.shard_file(machine).exists()
        }
        if "{host}" in str(opening.store):
            unseen = {}  # no node sees the files of another
        if unseen:
            path = str(opening.shard_file(min(unseen)).absolute())
            return InputError(unseen_shards(path, self._places[0].host, unseen))
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        remedy = ""
        if any(each.unseen for each in opened):
            remedy = "; cec-mpi repair makes a shard again from others, --machines leaves it out"
        return MachineError(f"{problems[0]}{more}{remedy}")

    def _emulation(
        self, opening: Opening, opened: list[Opened], hosts: list[str]
    ) -> Emulation | None:
        options = opening.options
        if options.emulate_speeds is None:
            return None
        base = options.emulate_base
        if base is None:
            rates = [each.rate for each in opened]
            base = fit_base(options.emulate_speeds, opening.machines, rates, hosts)
        return Emulation(
            options.emulate_speeds,
            base,
            options.emulate_noise,
            options.emulate_changes,
            options.seed,
        )


def check_ranks(size: int, machines: tuple[int, ...], total: int, spares: int = 0) -> None:
    """Refuse another number of ranks than one for the master, each machine and each spare."""
    problem = wrong_ranks(size, machines, total, spares, detect_launcher())
    if problem:
        raise InputError(problem)
