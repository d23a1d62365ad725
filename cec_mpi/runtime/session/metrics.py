"""Metrics of a run in the format of OpenMetrics, which Prometheus reads.

They are served at a port of this computer, or written to a file. docs/howto/watching.md lists them.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from cec_mpi.errors import InputError
from cec_mpi.runtime.records.events import KINDS_BY_NAME, kind_and_machine
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.records.step import AbsenceReason, StepRecord, Waiting
from cec_mpi.runtime.times import METRICS_SECONDS
from cec_mpi.runtime.wire.sockets.connection_file import MAX_PORT, parse_address
from cec_mpi.store.files.durable import publish
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.saving import reason_of
from cec_mpi.text import shorten
from cec_mpi.text.terminal import warn

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_STATES = ("available", *get_args(AbsenceReason))
_HOST = "127.0.0.1"
_FIRST_BYTES = b"# HELP cec_mpi_"  # of a file with metrics


def metrics_destination(metrics: int | str | os.PathLike[str]) -> tuple[str, int] | Path:
    """Return the address at which metrics are served, or the file to which they are written.

    Raises
    ------
    InputError
        It is neither, or the port is out of range.

    Examples
    --------
    >>> metrics_destination(9400), metrics_destination(":9400")
    (('127.0.0.1', 9400), ('0.0.0.0', 9400))
    >>> metrics_destination("metrics.txt").name
    'metrics.txt'
    """
    if isinstance(metrics, bool) or not isinstance(metrics, int | str | os.PathLike):
        raise InputError("not a port or a file")
    text = str(metrics) if isinstance(metrics, int) else os.fspath(metrics)
    if re.fullmatch(r"-?[0-9]+", text):
        text = f"{_HOST}:{text}"
    elif not re.fullmatch(r"[^/]*:[0-9]+", text):
        return as_path(text)
    host, port = parse_address(text)
    return host or "0.0.0.0", port


def check_metrics(metrics: int | str | os.PathLike[str]) -> None:
    """Check that metrics can be served or written.

    Raises
    ------
    InputError
        The port is in use, the directory of the file does not exist, the file contains other data,
        or the library is missing.
    """
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise InputError("metrics need prometheus_client: pip install 'cec_mpi[metrics]'") from None
    format_error = InputError(
        f"--metrics {shorten(metrics)}: expected a port from 1 to {MAX_PORT}, HOST:PORT, or a file "
        "in an existing directory"
    )
    try:
        destination = metrics_destination(metrics)
    except InputError:
        raise format_error from None
    if not isinstance(destination, Path):
        family = socket.AF_INET6 if ":" in destination[0] else socket.AF_INET
        try:
            socket.create_server(destination, family=family).close()
        except OSError as error:
            raise _port_error(metrics, error) from None
    elif not _can_be_file(destination):
        raise format_error
    elif _has_other_data(destination):
        raise InputError(
            f"--metrics {shorten(metrics)} exists and contains data other than metrics: "
            "expected another file"
        )


def _can_be_file(path: Path) -> bool:
    try:
        return path.absolute().parent.is_dir() and not path.is_dir()
    except OSError:  # such as a name that is too long
        return False


def _has_other_data(path: Path) -> bool:
    """Return whether a file exists and contains anything but metrics."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_FIRST_BYTES)) not in (b"", _FIRST_BYTES)
    except OSError:
        return True


def _port_error(metrics: object, error: OSError) -> InputError:
    reason = str(error.strerror).partition(" (")[0]
    return InputError(f"--metrics {metrics}: {reason}: expected a free port of this computer")


@contextmanager
def publish_metrics(metrics: int | str | os.PathLike[str], recorder: Recorder) -> Iterator[None]:
    """Context manager that publishes metrics of the steps of a recorder.

    Raises
    ------
    InputError
        The port is in use.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    destination, registry = metrics_destination(metrics), CollectorRegistry()
    run_metrics = RunMetrics()
    registry.register(run_metrics)
    recorder.watch(run_metrics.update)
    if isinstance(destination, Path):
        file = _MetricsFile(destination, registry)
        recorder.watch(file.update)
        file.write()
        try:
            yield
        finally:
            file.write()
        return
    try:
        server, thread = start_http_server(destination[1], destination[0], registry)
    except OSError as error:
        raise _port_error(metrics, error) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _MetricsFile:
    """A file with metrics that is replaced at most once a second."""

    def __init__(self, path: Path, registry: CollectorRegistry) -> None:
        self._path, self._registry = path, registry
        self._due = 0.0
        self._has_failed = False

    def update(self, _: object) -> None:
        """Write the file, if it was not written in the last second."""
        if time.monotonic() >= self._due:
            self.write()

    def write(self) -> None:
        """Write the file; the first failure is a warning."""
        from prometheus_client.openmetrics import exposition

        generate: Any = exposition.generate_latest  # has no type annotations
        try:
            publish(self._path, generate(self._registry))
        except OSError as error:
            if not self._has_failed:
                warn(f"{self._path} cannot be written: {reason_of(error)}; the run continues")
            self._has_failed = True
        self._due = time.monotonic() + METRICS_SECONDS


class RunMetrics:
    """Totals of the steps of this process, as a collector of prometheus_client."""

    def __init__(self) -> None:
        self._latest: StepRecord | Waiting | None = None
        self._waiting_since = 0.0
        self._steps = self._read_bytes = 0
        self._makespan_seconds = self._excess_seconds = self._waiting_seconds = 0.0
        self._events: Counter[str] = Counter()

    def update(self, record: StepRecord | Waiting) -> None:
        """Add a step or a wait for machines."""
        if isinstance(record, Waiting):
            if not isinstance(self._latest, Waiting):
                self._waiting_since = time.monotonic()
        else:
            self._steps += 1
            self._read_bytes += sum(record.load_bytes)
            self._makespan_seconds += record.measured_makespan
            if record.hindsight_makespan is not None:
                excess = record.measured_makespan - record.hindsight_makespan
                self._excess_seconds += max(0.0, excess)
            self._waiting_seconds += record.waited_seconds
            self._events.update(kind_and_machine(event)[0] for event in record.events)
        self._latest = record

    def collect(self) -> Iterator[Any]:
        """Yield all metrics."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            SummaryMetricFamily,
        )

        latest, waiting_seconds = self._latest, self._waiting_seconds
        if isinstance(latest, Waiting):
            waiting_seconds += time.monotonic() - self._waiting_since
        yield CounterMetricFamily("cec_mpi_steps", "Steps of this process.", self._steps)
        yield SummaryMetricFamily(
            "cec_mpi_makespan_seconds",
            "Time of the slowest machine in each step.",
            self._steps,
            self._makespan_seconds,
            unit="seconds",
        )
        yield CounterMetricFamily(
            "cec_mpi_over_optimum_seconds",
            "Time by which makespans exceeded the shortest possible ones.",
            self._excess_seconds,
            unit="seconds",
        )
        yield CounterMetricFamily(
            "cec_mpi_waiting_seconds",
            "Time in which too few machines were available.",
            waiting_seconds,
            unit="seconds",
        )
        yield CounterMetricFamily(
            "cec_mpi_read_bytes",
            "Bytes of shards that machines read.",
            self._read_bytes,
            unit="bytes",
        )
        machines = GaugeMetricFamily(
            "cec_mpi_machines", "Machines of the run in each state.", labels=["state"]
        )
        for state, count in _count_states(latest).items():
            machines.add_metric([state], count)
        yield machines
        events = CounterMetricFamily(
            "cec_mpi_events", "Events of machines of each kind.", labels=["kind"]
        )
        for kind in KINDS_BY_NAME:
            events.add_metric([kind], self._events[kind])
        yield events


def _count_states(latest: StepRecord | Waiting | None) -> dict[str, int]:
    """Return the number of machines in each state."""
    counts = dict.fromkeys(_STATES, 0)
    if latest is None:
        return counts
    counts["available"] = len(latest.available)
    if isinstance(latest, Waiting):
        return counts | Counter(latest.absence_reasons.values())
    return counts | {reason: len(machines) for reason, machines in latest.absent_since.items()}
