"""Availability from values and files; the format of a file is detected from its content."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import (
    Availability,
    FunctionAvailability,
    ListedAvailability,
    all_available,
    from_counts,
    validate_machines,
)
from cec_mpi.runtime.availability.timed_traces import (
    is_event_trace,
    is_job_trace,
    read_events,
    read_jobs,
)
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.regular import read_file_or_pipe
from cec_mpi.text import plural

EXAMPLE = "example"  # name of the included trace
_EXAMPLE_FILE = Path(__file__).parent / "traces" / "example.csv"


def as_availability(value: Any, machines: int) -> Availability:
    """Convert a value to an availability.

    Parameters
    ----------
    value : Availability, path, callable, iterable of int, sequence of sets, or None
        A path is read by `read_availability`. A callable takes the tick and returns machine
        numbers. A set of machine numbers applies to all ticks. A sequence of sets has one set for
        each tick, and the last set remains. None means all machines.
    machines : int
        Number of machines of the store, N.

    Raises
    ------
    InputError
        The type of the value is not supported, a machine is unknown, the sequence is empty, or the
        file is invalid.
    """
    if value is None:
        return all_available(machines)
    if isinstance(value, str | os.PathLike):
        return read_availability([value], machines)
    if hasattr(value, "at") and hasattr(value, "restrict_to"):
        availability: Availability = value
        return availability
    if callable(value):
        return FunctionAvailability(machines, value)
    all_machines = frozenset(range(1, machines + 1))
    if isinstance(value, Sequence) and all(isinstance(entry, Iterable) for entry in value):
        return ListedAvailability(
            [
                validate_machines(f"availability at tick {tick}", entry, all_machines)
                for tick, entry in enumerate(value)
            ]
        )
    return ListedAvailability([validate_machines("availability", value, all_machines)])


def read_availability(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    machines: int,
    repeat: bool = False,
) -> ListedAvailability:
    """Read availability from files.

    Parameters
    ----------
    paths : path or sequence of paths
        One file: JSON ``{"available": [[1, 2, 3], ..]}``; CSV with a row for each tick and a 0/1
        column for each machine; lines ``time,add|remove,node``; the output of ``sacct -P``; or JSON
        ``{"metadata": {"gap_seconds": g}, "data": [count, ..]}``. The counts of several files are
        added. ``"example"`` is an included trace of 16 spot machines over a day.
    machines : int
        Number of machines of the store, N.
    repeat : bool
        Whether the availability repeats after its end.

    Returns
    -------
    ListedAvailability

    Raises
    ------
    InputError
        The message names the file, the entry, and the found and expected values.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    contents = [_read_file(as_path(path), machines) for path in paths]
    if len(contents) == 1 and isinstance(contents[0], ListedAvailability):
        return ListedAvailability(contents[0]._ticks, repeat, contents[0].gap_seconds)
    counts_and_gaps = []
    for path, content in zip(paths, contents, strict=True):
        if isinstance(content, ListedAvailability):
            raise InputError(
                f'{path} lists machines, expected counts (a list "data"), because the counts of '
                "several files are added"
            )
        counts_and_gaps.append(content)
    if len({gap for _, gap in counts_and_gaps}) > 1:
        gaps = ", ".join("none" if gap is None else f"{gap:g}" for _, gap in counts_and_gaps)
        raise InputError(
            f"availability files have different gap_seconds ({gaps}), so their counts cannot be "
            "added"
        )
    # The last count of a shorter file remains.
    length = max(len(counts) for counts, _ in counts_and_gaps)
    totals = [
        sum(counts[min(tick, len(counts) - 1)] for counts, _ in counts_and_gaps)
        for tick in range(length)
    ]
    return from_counts(totals, machines, repeat, counts_and_gaps[0][1])


def _read_file(path: Path, machines: int) -> ListedAvailability | tuple[list[int], float | None]:
    try:
        file = _EXAMPLE_FILE if str(path) == EXAMPLE else path
        text = read_file_or_pipe(file).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file: expected JSON, CSV or a trace") from None
    if not text.strip():
        raise InputError(f"{path} is empty, expected the machines of each tick")
    if is_event_trace(text):
        return read_events(str(path), text, machines)
    if is_job_trace(text):
        return read_jobs(str(path), text, machines)
    if text.lstrip()[0] not in "{[":
        return _parse_csv(path, text, machines)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if isinstance(content, dict) and isinstance(content.get("available"), list):
        gap = _parse_gap(path, content.get("gap_seconds"))
        return _parse_sets(path, content["available"], machines, gap)
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        return _parse_counts(path, content)
    raise InputError(f'{path}: expected an object with a list "available" or "data"')


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _parse_gap(path: Path, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise InputError(f"{path}: gap_seconds is {value!r}, expected a positive number")
    return float(value)


def _parse_sets(
    path: Path, ticks: list[Any], machines: int, gap: float | None
) -> ListedAvailability:
    if not ticks:
        raise InputError(f'{path}: "available" is empty, expected a list for each tick')
    for index, entry in enumerate(ticks):
        location = f'{path}: entry {index} of "available"'
        if not isinstance(entry, list):
            raise InputError(f"{location} is {entry!r}, expected a list of machine numbers")
        for machine in entry:
            if not _is_count(machine) or not 1 <= machine <= machines:
                raise InputError(f"{location} has machine {machine!r}, expected 1 to {machines}")
        if len(set(entry)) != len(entry):
            raise InputError(f"{location} lists a machine twice: {entry}")
    return ListedAvailability(ticks, gap_seconds=gap)


def _parse_counts(path: Path, content: dict[str, Any]) -> tuple[list[int], float | None]:
    counts = content["data"]
    if not counts:
        raise InputError(f'{path}: "data" is empty, expected a count for each tick')
    for index, count in enumerate(counts):
        if not _is_count(count):
            raise InputError(
                f'{path}: entry {index} of "data" is {count!r}, expected a number of machines'
            )
    metadata = content.get("metadata")
    return counts, _parse_gap(
        path, metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    )


def _parse_csv(path: Path, text: str, machines: int) -> ListedAvailability:
    reader = csv.reader(text.splitlines())
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}") from None
    if rows and not any(cell.replace(".", "").isdigit() for cell in rows[0][1]):
        del rows[0]  # a header
    if not rows:
        raise InputError(f"{path} has no rows, expected one for each tick")
    for line, row in rows:
        if len(row) != machines or not set(row) <= {"0", "1"}:
            raise InputError(
                f"{path}: line {line} is {','.join(row)!r}, expected {plural(machines, 'column')} "
                "of 0 or 1"
            )
    return ListedAvailability(
        [[n for n, cell in enumerate(row, start=1) if cell == "1"] for _, row in rows]
    )
