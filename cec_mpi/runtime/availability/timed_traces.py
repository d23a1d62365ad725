"""Traces with times: events of nodes, and jobs of Slurm.

They are converted to ticks of one minute. A machine is available in a tick if its node is up during
the whole tick.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import NamedTuple

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.runtime.availability.nodelist import expand_nodelist
from cec_mpi.text import shorten

GAP_SECONDS = 60.0  # between ticks
_MAX_TICKS = 5_000_000  # 9.5 years
_EVENTS = ("add", "remove")
_MILLISECONDS = re.compile(r"ms|msecs?|milli[a-z]*")  # unit in a header
_HEADERS_WITHOUT_UNIT = ("time", "timestamp", "t")
_UNIX_SECONDS_RANGE = 1e9, 2.5e9  # since 1970: from 2001 to 2049
_MIN_UNIX_MICROSECONDS = 1e15


class UpInterval(NamedTuple):
    """Period in which a node is up, in seconds; the end is infinite if it is unknown."""

    node: str
    begin: float
    end: float


def is_event_trace(text: str) -> bool:
    """Return whether a text is a trace ``time,add|remove,node``, possibly with a header."""
    rows = [line.split(",") for _, line in _numbered_lines(text, 2)]
    return any(len(cells) == 3 and cells[1].strip() in _EVENTS for cells in rows)


def is_job_trace(text: str) -> bool:
    """Return whether a text is the output of ``sacct -P``."""
    return any("|" in line for _, line in _numbered_lines(text, 1))


def read_events(path: str, text: str, machines: int) -> ListedAvailability:
    """Read lines ``time,add|remove,node`` in chronological order.

    Times are in milliseconds, or in seconds if the header begins with ``seconds``. Any other
    header must name milliseconds, or be ``time``, ``timestamp`` or ``t``; otherwise `InputError` is
    raised. It is also raised if no unit is named and the first time seems to be a Unix time in
    another unit. Nodes keep their last state.
    """
    intervals: list[UpInterval] = []
    up_since: dict[str, float] = {}  # by node
    unit, has_unit, now = 1e-3, False, -math.inf
    for index, (number, line) in enumerate(_numbered_lines(text)):
        cells = [cell.strip() for cell in line.split(",")]
        location = f"{path}: line {number} is {shorten(line)}"
        time = _parse_finite(cells[0])
        if index == 0 and time is None:
            unit, has_unit = _parse_unit(location, cells[0])
            continue
        if len(cells) != 3 or time is None or cells[1] not in _EVENTS or not cells[2]:
            raise InputError(
                f"{location}, expected a time, add or remove, and a node: 60000,add,n1"
            )
        if not (has_unit or up_since or intervals):
            _check_milliseconds(location, time)
        seconds, event, node = time * unit, cells[1], cells[2]
        if seconds < now:
            raise InputError(f"{location}, which is earlier than the previous line")
        if (event == "add") == (node in up_since):
            state = "already up" if event == "add" else "not up"
            raise InputError(f"{location}, but {node} is {state}")
        now = seconds
        if event == "add":
            up_since[node] = now
        else:
            intervals.append(UpInterval(node, up_since.pop(node), now))
    intervals += [UpInterval(node, begin, math.inf) for node, begin in up_since.items()]
    begin = min(interval.begin for interval in intervals)
    return _to_availability(path, intervals, begin, now + GAP_SECONDS, machines)


def _parse_unit(location: str, header: str) -> tuple[float, bool]:
    """Return the unit of times in seconds, and whether the header names it."""
    name = header.lower()
    if name.startswith("seconds"):
        return 1.0, True
    words = [word for word in re.split(r"[\W\d_]+", name) if word]
    if any(_MILLISECONDS.fullmatch(word) for word in words):
        return 1e-3, True
    if len(words) != 1 or words[0] not in _HEADERS_WITHOUT_UNIT:
        raise InputError(
            f"{location}, expected times in milliseconds, or a header seconds,... (or ms,...)"
        )
    return 1e-3, False


def _check_milliseconds(location: str, time: float) -> None:
    """Raise if the first time of a trace without a unit is a Unix time in another unit."""
    first, last = _UNIX_SECONDS_RANGE
    if first <= time <= last or time >= _MIN_UNIX_MICROSECONDS:
        unit = "seconds" if time <= last else "micro- or nanoseconds"
        raise InputError(
            f"{location}, which seems to be in {unit} since 1970, expected times in milliseconds, "
            "or a header seconds,... (or ms,...)"
        )


def read_jobs(path: str, text: str, machines: int) -> ListedAvailability:
    """Read the output of ``sacct -P -o JobID,Start,End,State,NodeList``.

    Either all times or none have offsets from UTC. A node is up while a job runs on it, however the
    job ends. Jobs that have not started are ignored. Jobs that are still running extend the trace
    by one minute, and run to its end.
    """
    rows = _numbered_lines(text)
    header = [name.strip() for name in next(rows)[1].split("|")]
    if missing := [name for name in ("Start", "End", "NodeList") if name not in header]:
        raise InputError(
            f"{path}: line 1 has no column {missing[0]}, expected the output of sacct -P -o "
            "JobID,Start,End,State,NodeList"
        )
    columns = [header.index(name) for name in ("Start", "End", "NodeList")]
    intervals = []
    has_offset: bool | None = None
    for number, line in rows:
        cells, location = line.split("|"), f"{path}: line {number}"
        if len(cells) != len(header):
            raise InputError(f"{location} has {len(cells)} columns, expected {len(header)}")
        start, end, nodes = (cells[column].strip() for column in columns)
        start_time = _parse_time(location, "Start", start)
        if start_time is None or nodes in ("", "None assigned"):
            continue
        try:
            names = expand_nodelist(nodes)
        except InputError as error:
            raise InputError(f"{location}: {error}") from None
        end_time = _parse_time(location, "End", end)
        for time in (start_time, end_time or start_time):
            if has_offset is None:
                has_offset = time.tzinfo is not None
            if has_offset != (time.tzinfo is not None):
                raise InputError(
                    f"{location} has times from {start} to {end}, but earlier times have "
                    f"{'an' if has_offset else 'no'} offset from UTC: expected offsets for all "
                    "times, or for none"
                )
        interval = UpInterval("", _seconds_since_2000(start_time), _seconds_since_2000(end_time))
        if interval.end < interval.begin:
            hint = "" if has_offset else " (TZ=UTC sacct prints times without daylight saving)"
            raise InputError(f"{location}: End {end} is before Start {start}{hint}")
        intervals += [interval._replace(node=name) for name in names]
    if not intervals:
        raise InputError(f"{path} has no job that has started")
    trace_end = max(
        interval.begin if interval.end == math.inf else interval.end for interval in intervals
    )
    if any(interval.end == math.inf for interval in intervals):
        trace_end += GAP_SECONDS  # so that running jobs fill at least one tick
    begin = min(interval.begin for interval in intervals)
    return _to_availability(path, intervals, begin, trace_end, machines)


def _to_availability(
    path: str, intervals: list[UpInterval], begin: float, end: float, machines: int
) -> ListedAvailability:
    """Return the availability from `begin` to `end` of machines on these nodes."""
    if end - begin > _MAX_TICKS * GAP_SECONDS:
        raise InputError(f"{path} covers more than {_MAX_TICKS} minutes: expected fewer")
    ticks = max(1, int((end - begin) // GAP_SECONDS))
    tick_ranges = defaultdict(list)
    for node, first, last in _merge_intervals(intervals):
        start = math.ceil((first - begin) / GAP_SECONDS)
        stop = ticks if last == math.inf else int((last - begin) // GAP_SECONDS)
        if start < stop:
            tick_ranges[node].append((start, stop))
    changes = dict(_assign_numbers(tick_ranges, machines))
    bounds = sorted({0, ticks, *(tick for tick in changes if tick < ticks)})
    available: list[tuple[int, ...]] = []  # machines at each tick
    for tick, next_tick in pairwise(bounds):
        available += [changes.get(tick, ())] * (next_tick - tick)
    return ListedAvailability(available, gap_seconds=GAP_SECONDS)


def _merge_intervals(intervals: Iterable[UpInterval]) -> Iterator[UpInterval]:
    """Yield the intervals of each node; merge those that overlap or touch."""
    current: UpInterval | None = None
    for interval in sorted(intervals):
        if current and current.node == interval.node and interval.begin <= current.end:
            current = current._replace(end=max(current.end, interval.end))
            continue
        if current:
            yield current
        current = interval
    if current:
        yield current


def _assign_numbers(
    tick_ranges: dict[str, list[tuple[int, int]]], machines: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield ticks at which the available machines change, and the available machines.

    A node gets its previous number if that is free, else the lowest unused number, else the number
    that has been free longest. If no number is free, the node waits. A number stays free for at
    least one tick before another node gets it, because that node must read the shard.
    """
    arrivals, departures = defaultdict(list), defaultdict(list)
    for node, node_ranges in tick_ranges.items():
        for start, stop in node_ranges:
            arrivals[start].append(node)
            departures[stop].append(node)
    # The tick since which each number is free, and a tie-breaker.
    free_since = {number: (-1, number) for number in range(1, machines + 1)}
    previous_number: dict[str, int] = {}
    current_number: dict[str, int] = {}
    waiting_nodes: dict[str, None] = {}  # in order of arrival
    for tick in sorted({*arrivals, *departures, *(tick + 1 for tick in departures)}):
        for node in departures[tick]:
            waiting_nodes.pop(node, None)
            if node in current_number:
                number = current_number.pop(node)
                free_since[number] = tick, number
        waiting_nodes |= dict.fromkeys(sorted(arrivals[tick], key=_natural_key))
        for node in list(waiting_nodes):
            candidates = [number for number, (since, _) in free_since.items() if since < tick]
            if not candidates:
                break
            number = (
                previous_number[node]
                if previous_number.get(node) in candidates
                else min(candidates, key=free_since.__getitem__)
            )
            del free_since[number], waiting_nodes[node]
            current_number[node] = previous_number[node] = number
        yield tick, tuple(sorted(current_number.values()))


def _natural_key(name: str) -> list[tuple[int, str]]:
    """Return the key that sorts n2 before n10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _numbered_lines(text: str, limit: int | None = None) -> Iterator[tuple[int, str]]:
    """Yield the first nonblank lines with their numbers, up to a limit."""
    lines = ((n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip())
    return islice(lines, limit)


def _parse_finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _parse_time(location: str, name: str, text: str) -> datetime | None:
    """Parse a time of sacct; return None if it is unknown."""
    if text in ("Unknown", "None", ""):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"{location}: {name} is {shorten(text)}, expected a time such as 2026-01-31T22:00:00, "
            "or 2026-01-31T22:00:00+0100"
        ) from None


def _seconds_since_2000(time: datetime | None) -> float:
    """Return the seconds since 2000; infinity for an unknown time.

    A time without an offset is interpreted as UTC.
    """
    if time is None:
        return math.inf
    return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH).total_seconds()


_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
