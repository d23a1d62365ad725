"""What a machine's rank does until the master leaves: opens stores, answers steps."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.step.product import Product
from cec_mpi.errors import CecError
from cec_mpi.machine.machine import Machine
from cec_mpi.processes.ending import NotedSignals
from cec_mpi.processes.logs import log_file
from cec_mpi.processes.places import limit_threads
from cec_mpi.session.stores import noting_problems, open_adopted, open_machine
from cec_mpi.wire.orders import Adopt, Close, Explain, Multiply, Open, Opened, Opening, Report, Stop
from cec_mpi.wire.protocol import MachineEnd

log = logging.getLogger(__name__)


def serve(end: MachineEnd, make: Callable[..., Machine] = Machine) -> BaseException | None:
    """Open stores and answer steps until the master says stop.

    An exception in a computation is logged and reported; the machine then stays in step
    with the others until the master ends the run. SIGTERM and SIGUSR1 are warnings that the
    machine has to leave soon: it tells the master, and serves on.

    Parameters
    ----------
    end : MachineEnd
    make : callable
        Makes the machine of a store, as `Machine` does.

    Returns
    -------
    BaseException or None
        What the master left with.
    """
    machines: dict[int, Machine] = {}
    openings: dict[int, Opening] = {}
    problem = ""
    with ExitStack() as session, NotedSignals() as signals, Machine.unwarned():
        while True:
            match order := end.announced(signals):
                case Multiply():
                    machine, shared = machines[order.store], end.shared(order)
                    report, failed = answer(machine, order, shared)
                    end.answer(order, machine.values, _warned(report, signals))
                    problem = failed or problem
                case Adopt():
                    given = machines[order.store], openings[order.store], order.shards
                    report, failed = adopt(*given)
                    nothing = Multiply(order.store, order.step, order.shard, Product(), ())
                    end.answer(nothing, np.empty(0), _warned(report, signals))
                    problem = failed or problem
                case Explain():
                    end.report(problem)
                case Open():
                    opened = _open(order, end, make, session)
                    if opened is not None:
                        machines[order.store] = opened
                        openings[order.store] = order.opening
                case Close():  # a spare may not have opened it
                    machines.pop(order.store, None)
                    openings.pop(order.store, None)
                case Stop():
                    return order.error


def answer(machine: Machine, order: Multiply, values: NDArray[Any]) -> tuple[Report, str]:
    """Answer a step: what the machine says of it, and what went wrong, or nothing."""
    if order.intervals is not None:
        machine.assign(order.intervals)
    machine.prepare(order.product)
    done = machine.work(order.product, values, order.step)
    if done.problem:
        return Report(failed=True), done.problem
    return Report(done.seconds, done.loaded, mended=done.mended), ""


def adopt(machine: Machine, opening: Opening, shards: Sequence[int]) -> tuple[Report, str]:
    """Take over shards: what the machine says of it, and why that cannot be, or nothing."""
    try:
        loaded = machine.adopt(shards, partial(open_adopted, opening))
        report = Report(0.0, loaded, mended=machine.mended())
    except Exception as error:
        log.exception("machine %d takes over no shards", machine.number)
        return Report(failed=True), str(error) or type(error).__name__
    log.info("machine %d has taken over the shards %s", machine.number, shards)
    return report, ""


def _warned(report: Report, signals: NotedSignals) -> Report:
    """A report, with the warning that has come until now."""
    return report if signals.received is None else replace(report, leaving=True)


def _open(
    order: Open, end: MachineEnd, make: Callable[..., Machine], session: ExitStack
) -> Machine | None:
    """Open a store; None if this machine could not, or the master refuses it."""
    machine, rate = None, 0.0
    opening, number = order.opening, order.machine
    problems: list[str] = []
    unlogged: list[str] = []
    with noting_problems(number, problems):
        session.enter_context(limit_threads(order.threads))
        if opening.logs is not None and number:
            path = opening.logs / f"machine-{number:04d}.log"
            session.enter_context(log_file(path, unlogged.append))
        machine = open_machine(number, opening, make)
        log.info("machine %d on %s, process %d", number, socket.gethostname(), os.getpid())
    if opening.measured:
        end.together()
        with noting_problems(number, problems):
            rate = machine.measure_rate() if machine is not None else 0.0
    files = () if machine is None else machine.shard_files
    unseen = bool(problems and opening.unseen(number))
    verdict = end.opened(Opened("".join(problems), files, rate, unseen, "".join(unlogged)))
    if machine is None or isinstance(verdict, CecError):
        return None
    machine.emulation = verdict
    return machine
