"""The loop of a host: it opens shards and computes answers until the session ends."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import CecError, DamagedStoreError, InputError, MachineError, StoppedError
from cec_mpi.runtime.machine.faults import parse_faults
from cec_mpi.runtime.machine.machine import Machine, Report
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.processes.resources import limit_threads
from cec_mpi.runtime.wire.orders import Close, Multiply, Open, Opening, OpenReport, Stop
from cec_mpi.store.cache import open_cached
from cec_mpi.store.files.log_file import log_file
from cec_mpi.store.files.paths import expand_host
from cec_mpi.store.format.shard_files import find_file_problem
from cec_mpi.store.reader import Store
from cec_mpi.store.shard import CPU, Shard

if TYPE_CHECKING:
    from cec_mpi.runtime.wire.protocol import MachineEndpoint
    from cec_mpi.store.devices import Device

log = logging.getLogger(__name__)


def serve(endpoint: MachineEndpoint) -> BaseException | None:
    """Open shards and compute answers until the master ends the session.

    An exception in a computation is logged and reported, and the machine continues. SIGTERM and
    SIGUSR1 announce that the process must end soon: it reports this to the master, and continues.

    Returns
    -------
    BaseException or None
        The exception that ended the session on the master, or `ShutdownRequested` if this host has
        left before its end; None if neither.
    """
    machines: dict[int, Machine] = {}
    logs: dict[int, ExitStack] = {}
    with ExitStack() as session_stack, SignalRecorder() as signals, Machine.ignore_fp_warnings():
        while True:
            match order := endpoint.receive_order(signals):
                case Multiply():
                    values, reports = compute_answers(
                        machines, order, endpoint.receive_operand(order)
                    )
                    if signals.first_signal is not None:
                        reports = [report._replace(leaving=True) for report in reports]
                    endpoint.send_answer(order, values, reports)
                case Open():
                    log_stack = logs[order.machine] = session_stack.enter_context(ExitStack())
                    machine = _open_and_report(order, endpoint, session_stack, log_stack)
                    if machine is not None:
                        machines[order.machine] = machine
                case Close():
                    del machines[order.machine]
                    logs.pop(order.machine).close()
                case Stop():
                    return order.error


def compute_answers(
    machines: Mapping[int, Machine], order: Multiply, operand: NDArray[Any]
) -> tuple[list[NDArray[Any]], list[Report]]:
    """Compute the answers of the machines of this host, one after the other.

    Times are reported as if each machine had an equal share of the speed of this process.

    Returns
    -------
    list of ndarray
        The answer of each machine to X W, (row_count * k,), or the sum of the terms of X' V.
    list of Report
        The report of each machine.
    """
    product, begin = order.product, 0
    answers, reports = [], []
    for number, intervals in order.parts:
        machine = machines[number]
        if intervals is not None:
            machine.assign(intervals)
        machine.prepare(product)
        machine.machines_on_host = len(machines)
        own_operand = operand
        if product.adjoint and len(order.parts) > 1:
            own_operand = operand[begin : begin + machine.row_count]
            begin += machine.row_count
        reports.append(machine.execute(product, own_operand, order.step))
        answers.append(machine.values)
    if len(machines) > 1:
        weighted_rows = [machines[part.machine].weighted_rows for part in order.parts]
        total_seconds = len(machines) * sum(report.seconds for report in reports)
        seconds_per_row = total_seconds / (sum(weighted_rows) or 1.0)
        reports = [
            report._replace(seconds=seconds_per_row * rows)
            for report, rows in zip(reports, weighted_rows, strict=True)
        ]
    return (_sum_terms(answers, reports) if product.adjoint else answers), reports


def _sum_terms(terms: list[NDArray[Any]], reports: list[Report]) -> list[NDArray[Any]]:
    """Return the sum of the terms of machines that have not failed; the first term if all have."""
    valid = [term for term, report in zip(terms, reports, strict=True) if not report.problem]
    for term in valid[1:]:
        valid[0] += term
    return valid[:1] or terms[:1]


def _open_and_report(
    order: Open,
    endpoint: MachineEndpoint,
    session_stack: ExitStack,
    log_stack: ExitStack,
) -> Machine | None:
    """Open and report a shard; return its machine, or None if that failed or the master refuses it.

    `session_stack` is closed at the end of the session, and `log_stack` with the machine.
    """
    machine, rate = None, 0.0
    opening, number = order.opening, order.machine
    problems: list[CecError] = []
    log_problems: list[str] = []
    with collect_problems(number, problems, reraise=StoppedError):
        session_stack.enter_context(limit_threads(order.threads))
        if opening.log_directory is not None and number:
            path = opening.log_directory / f"machine-{number:04d}.log"
            log_stack.enter_context(log_file(path, log_problems.append))
        machine = open_machine(number, opening, endpoint.check_connection)
        log.info("machine %d on %s, process %d", number, socket.gethostname(), os.getpid())
    if opening.measures_speed:
        endpoint.wait_for_all()
        with collect_problems(number, problems):
            rate = machine.measure_rate() if machine is not None else 0.0
    report = make_open_report(number, opening, machine, problems, rate, "".join(log_problems))
    admission = endpoint.send_open_report(report)
    if machine is None or admission.failure is not None:
        return None
    machine.emulation = admission.emulation
    return machine


@contextmanager
def collect_problems(
    number: int, problems: list[CecError], reraise: type[CecError] | tuple[()] = ()
) -> Iterator[None]:
    """Append errors to `problems` instead of raising them, because other ranks wait."""
    try:
        yield
    except reraise:
        raise
    except (CecError, OSError) as error:
        log.exception("machine %d cannot start", number)
        types = DamagedStoreError, InputError
        error_type = next((t for t in types if isinstance(error, t)), MachineError)
        host = socket.gethostname()
        problems.append(error_type(f"machine {number} on {host} cannot start: {error}"))


def open_machine(
    number: int, opening: Opening, check_cancelled: Callable[[], None] = lambda: None
) -> Machine:
    """Return a machine that has opened its shard; number 0, for a rank without a machine, has none.

    `check_cancelled` is called while the shard is copied, and may raise.

    Raises
    ------
    DamagedStoreError
        The shard cannot be opened.
    InputError
        See `_choose_device`.
    """
    manifest, options = opening.manifest, opening.options
    if not number:
        return Machine(0, None, manifest.columns, opening.arithmetic)
    store = Store(expand_host(opening.store), manifest)
    device = _choose_device(number, opening)
    shard, cache_problem = _open_shard(store, number, options, check_cancelled, device)
    on_device = "" if device is None else f", and computes on {device}"
    log.info("machine %d reads %s%s", number, shard.path, on_device)
    machine = Machine(number, shard, manifest.columns, opening.arithmetic)
    machine.device = "" if device is None else device.name
    machine.cache_problem = cache_problem
    machine.faults = parse_faults(options.inject, manifest.code.machines, options.seed)
    return machine


def make_open_report(
    number: int,
    opening: Opening,
    machine: Machine | None,
    problems: list[CecError],
    rate: float,
    log_problem: str = "",
) -> OpenReport:
    """Return the report on opening a shard; `machine` is None if that has failed."""
    report = OpenReport(
        problem="".join(map(str, problems)),
        rate=rate,
        is_shard_missing=bool(problems) and opening.is_shard_missing(number),
        is_damaged=any(isinstance(problem, DamagedStoreError) for problem in problems),
        log_problem=log_problem,
        is_usage_error=any(isinstance(problem, InputError) for problem in problems),
    )
    if machine is None:
        return report
    return replace(
        report,
        shard_path=machine.shard_file,
        cache_problem=machine.cache_problem,
        device=machine.device,
    )


def _choose_device(number: int, opening: Opening) -> Device | None:
    """Return the device of a machine; None for the CPU.

    Raises
    ------
    InputError
        The device is absent, or cannot compute in this precision.
    """
    name = opening.options.device_of(number)
    if name == CPU:
        return None
    from cec_mpi.store.devices import choose_device

    device = choose_device(name, number)
    if device is not None and not device.has_float64 and opening.arithmetic == np.float64:
        raise InputError(
            f"device {name}: {device.name} has no float64, expected --precision shard with a "
            "store of float32"
        )
    return device


def _open_shard(
    store: Store,
    number: int,
    options: MachineOptions,
    check_cancelled: Callable[[], None],
    device: Device | None,
) -> tuple[Shard, str]:
    """Return the shard, and why the cache could not be used.

    The reason is empty if the cache is used, or not configured.
    """
    cache_problem = ""
    if options.cache:
        try:
            cache = expand_host(options.cache)
            shard = open_cached(
                store,
                number,
                options.shards,
                options.verify,
                cache,
                options.cache_limit,
                check_cancelled,
                device,
            )
            return shard, ""
        except (DamagedStoreError, InputError, OSError) as error:
            reason = getattr(error, "strerror", None) or error
            cache_problem = (
                f"machine {number} on {socket.gethostname()} reads its shard from the store, "
                f"because it cannot be copied to {cache}: {reason}"
            )
            log.warning("%s", cache_problem)
    try:
        shard = store.open_shard(number, options.shards, options.verify, device=device)
        return shard, cache_problem
    except DamagedStoreError as error:
        file = store.path / store.manifest.shards[number - 1].file
        if not find_file_problem(file, store.manifest):
            raise
        raise DamagedStoreError(f"{error} (cec-mpi repair {store.path} repairs it)") from None
