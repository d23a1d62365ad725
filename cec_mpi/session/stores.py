"""The stores that machines open: what each machine does, and what the master makes of it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cec_mpi.core.placement.placement import Placement
from cec_mpi.errors import CecError, DamagedStoreError, InputError, MachineError
from cec_mpi.machine.emulation import Emulation, fit_base
from cec_mpi.machine.faults import read_faults
from cec_mpi.machine.machine import Machine
from cec_mpi.options.machines import MachineOptions
from cec_mpi.options.session import SessionOptions
from cec_mpi.processes.findings import unseen_shards, wrong_ranks
from cec_mpi.processes.launcher import detect_launcher
from cec_mpi.processes.places import Place
from cec_mpi.store.format.shard_files import problem_on_opening
from cec_mpi.store.reader import Store
from cec_mpi.store.shard import Shard
from cec_mpi.store.stack import Stack
from cec_mpi.store.staging import node_directory, staged_file
from cec_mpi.wire.orders import Opened, Opening

log = logging.getLogger(__name__)


@contextmanager
def noting_problems(
    number: int, problems: list[str], passed: type[CecError] | tuple[()] = ()
) -> Iterator[None]:
    """Note why a machine cannot start, in place of raising it: the others wait for it."""
    try:
        yield
    except passed:
        raise
    except (CecError, OSError) as error:
        log.exception("machine %d cannot start", number)
        problems.append(f"machine {number} on {socket.gethostname()} cannot start: {error}")


def open_machine(number: int, opening: Opening, make: Callable[..., Machine] = Machine) -> Machine:
    """A machine with its shards, or one without when it has no part in the store.

    Raises
    ------
    DamagedStoreError
        A shard cannot be opened.
    """
    manifest, options = opening.manifest, opening.options
    if not number:
        return make(0, None, manifest.columns, opening.arithmetic)
    store = Store(node_directory(opening.store), manifest)
    shards = []
    for n in opening.placement.of(number):
        copy = staged_file(options.staged, manifest, n) if options.staged else None
        log.info("machine %d reads %s", number, copy or store.path / manifest.shards[n - 1].file)
        shards.append(_open_shard(store, n, copy, options))
    shard = shards[0] if len(shards) == 1 else Stack(shards)
    machine = make(number, shard, manifest.columns, opening.arithmetic)
    machine.faults = read_faults(options.inject, opening.placement.machines, options.seed)
    return machine


def open_adopted(opening: Opening, number: int) -> Shard:
    """A shard that a machine takes over, from the store.

    Raises
    ------
    DamagedStoreError
        It cannot be opened, or this node does not see it.
    """
    store = Store(node_directory(opening.store), opening.manifest)
    file = store.path / opening.manifest.shards[number - 1].file
    if not file.exists():
        raise DamagedStoreError(f"{file}: no such file")
    return _open_shard(store, number, None, opening.options)


def _open_shard(store: Store, number: int, copy: Path | None, options: MachineOptions) -> Shard:
    if options.mends:
        from cec_mpi.store.degraded import DegradedShard  # which makes rows anew

        return DegradedShard(store, number, options.shards, options.verify, copy)
    try:
        return store.open_shard(number, options.shards, options.verify, copy)
    except DamagedStoreError as error:
        file = store.path / store.manifest.shards[number - 1].file
        if not (file.exists() and problem_on_opening(file, store.manifest)):
            raise
        raise DamagedStoreError(
            f"{error} (cec-mpi repair {store.path} rebuilds it; with --elastic a run continues)"
        ) from None


def problem_of_opening(
    opening: Opening, opened: Sequence[Opened], places: Sequence[Place]
) -> CecError | None:
    """Why machines cannot open a store, if some cannot.

    Parameters
    ----------
    opening : Opening
    opened : sequence of Opened
        What ranks from 1 on said to it.
    places : sequence of Place
        Of ranks from 0 on.
    """
    problems = [each.problem for each in opened if each.problem]
    if not problems:
        return None
    unseen = {
        machine: places[rank].host
        for rank, machine in enumerate(opening.machines, start=1)
        if opened[rank - 1].unseen and not opening.unseen(machine)
    }
    if "{host}" in str(opening.store):
        unseen = {}  # no node sees the files of another
    if unseen:
        path = str(opening.shard_files(min(unseen))[0].absolute())
        return InputError(unseen_shards(path, places[0].host, unseen))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    remedy = ""
    if any(each.unseen for each in opened):
        remedy = "; cec-mpi repair makes a shard again from others, --machines leaves it out"
        if not opening.options.mends:
            remedy += ", --elastic makes it in memory"
    return MachineError(f"{problems[0]}{more}{remedy}")


def emulation_of(
    options: SessionOptions, machines: Sequence[int], opened: Sequence[Opened], hosts: Sequence[str]
) -> Emulation | None:
    """How slow machines are to appear, on a base that they have measured, or that was given.

    Parameters
    ----------
    options : SessionOptions
    machines, hosts : sequence
        The machine of each rank from 1 on, and where it runs.
    opened : sequence of Opened
        What these ranks said.
    """
    if options.emulate_speeds is None:
        return None
    base = options.emulate_base
    if base is None:
        rates = [each.rate for each in opened]
        base = fit_base(options.emulate_speeds, machines, rates, hosts)
    return Emulation(
        options.emulate_speeds,
        base,
        options.emulate_noise,
        options.emulate_changes,
        options.seed,
    )


def check_ranks(size: int, machines: tuple[int, ...], placement: Placement) -> None:
    """Raise unless there is one rank for the master and one for each machine."""
    shards = () if placement.is_plain else placement.counts
    total, launcher = placement.machines, detect_launcher()
    problem = wrong_ranks(size, machines, total, launcher, shards)
    if problem:
        raise InputError(problem)


def check_joining(options: SessionOptions) -> None:
    """Raise for what needs machines that are there from the beginning."""
    if options.emulate_speeds is not None and options.emulate_base is None:
        raise InputError(
            "emulate speeds without machines that were started: expected a base too "
            "(--emulate-base), because machines that join later cannot be measured together"
        )
    if isinstance(options.speeds, Mapping):
        raise InputError(
            "speeds of hosts without machines that were started: expected a speed for each "
            "machine, or learn, because it is not known where machines will be"
        )
