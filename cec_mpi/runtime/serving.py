"""What a machine's rank does until the master leaves: opens stores, answers steps."""

from __future__ import annotations

import logging
import os
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from cec_mpi.errors import CecError
from cec_mpi.runtime.exchange import Announcement, MachineEnd, Opened, Opening, Report
from cec_mpi.runtime.faults import read_faults
from cec_mpi.runtime.logs import log_file
from cec_mpi.runtime.machine import Machine
from cec_mpi.runtime.places import limit_threads
from cec_mpi.runtime.signals import NotedSignals
from cec_mpi.store.reader import Store
from cec_mpi.store.staging import node_directory, staged_file

__all__ = ["describe", "noting_problems", "open_machine", "serve"]

log = logging.getLogger(__name__)


def serve(
    rank: int, end: MachineEnd, make: Callable[..., Machine] = Machine
) -> BaseException | None:
    """Open stores and answer steps until the master says stop.

    An exception in a computation is logged and reported; the machine then stays in step
    with the others until the master ends the run. SIGTERM and SIGUSR1 are warnings that the
    machine has to leave soon: it tells the master, and serves on.

    Parameters
    ----------
    rank : int
    end : MachineEnd
    make : callable
        Makes the machine of a store, as `Machine` does.

    Returns
    -------
    BaseException or None
        What the master left with.
    """
    machines: dict[int, Machine] = {}
    problem = ""
    with ExitStack() as session, NotedSignals() as signals:
        while True:
            order = end.announced(signals)
            if order.stop:
                return order.stop if isinstance(order.stop, BaseException) else None
            if order.report:
                end.report(problem)
            elif order.close:
                del machines[order.store]
            elif order.open is not None:
                machine = _open(rank, order.open, end, make, session)
                if machine is not None:
                    machines[order.store] = machine
            else:
                problem = _answer(machines[order.store], order, end, signals) or problem


def _answer(machine: Machine, order: Announcement, end: MachineEnd, signals: NotedSignals) -> str:
    """Answer a step; returns what went wrong, or nothing."""
    problem = ""
    if order.intervals is not None:
        machine.assign(order.intervals)
    machine.prepare(order.product)
    values = end.shared(order)
    try:
        loaded = machine.load()
        seconds = machine.compute(order.product, values, order.step)
        report = Report(seconds, loaded, leaving=signals.received is not None)
    except Exception as error:
        log.exception("machine %d failed in step %d", machine.number, order.step)
        problem = describe(error)
        machine.values(order.product).fill(np.nan)
        report = Report(failed=True)
    end.answer(order, machine.values(order.product), report)
    return problem


def _open(
    rank: int, opening: Opening, end: MachineEnd, make: Callable[..., Machine], session: ExitStack
) -> Machine | None:
    """Open a store, as all machines do at the same time; None if one of them could not."""
    machine, rate = None, 0.0
    number = opening.machines[rank - 1]
    problems: list[str] = []
    with noting_problems(number, problems):
        session.enter_context(limit_threads(opening.threads[rank]))
        if opening.logs is not None and number:
            session.enter_context(log_file(opening.logs / f"machine-{number:04d}.log"))
        machine = open_machine(number, opening, make)
        log.info("machine %d on %s, process %d", number, socket.gethostname(), os.getpid())
    if opening.measured:
        end.together()
        with noting_problems(number, problems):
            rate = machine.measure_rate() if machine is not None else 0.0
    shard = "" if machine is None else machine.shard_file
    unseen = bool(problems) and not opening.shard_file(number).exists()
    verdict = end.opened(Opened("".join(problems), shard, rate, unseen))
    if machine is None or isinstance(verdict, CecError):
        return None
    machine.emulation = verdict
    return machine


@contextmanager
def noting_problems(number: int, problems: list[str]) -> Iterator[None]:
    """Note why a machine cannot start, in place of raising it: the others wait for it."""
    try:
        yield
    except (CecError, OSError) as error:
        log.exception("machine %d cannot start", number)
        problems.append(f"machine {number} on {socket.gethostname()} cannot start: {error}")


def open_machine(number: int, opening: Opening, make: Callable[..., Machine] = Machine) -> Machine:
    """A machine with its shard, or one without when it has no part in the store.

    Raises
    ------
    DamagedStoreError
        The shard cannot be opened.
    """
    manifest, options = opening.manifest, opening.options
    if not number:
        return make(0, None, manifest.columns, manifest.dtype)
    copy = staged_file(options.staged, manifest, number) if options.staged else None
    store = Store(node_directory(opening.store), manifest)
    log.info("machine %d reads %s", number, copy or store.path)
    shard = store.open_shard(number, options.shards, options.verify, copy)
    machine = make(number, shard, manifest.columns, manifest.dtype)
    machine.faults = read_faults(options.inject, manifest.code.machines, options.seed)
    return machine


def describe(error: Exception) -> str:
    """An error in one line: our own are sentences, others need their kind."""
    if isinstance(error, CecError):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()
