"""A window of steps in Chrome's trace format, which Perfetto opens: one track a machine.

What rank 0 did, one after the other, is on its own track: announce, share, collect, decode. The
records say how long each part took, and when the step ended to a millisecond: so each step ends
there, or where the one before it leaves room, and its parts end one before the other. Machines load
and compute while rank 0 collects.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cec_mpi.errors import InputError
from cec_mpi.records.directory import STEPS
from cec_mpi.records.events import KINDS
from cec_mpi.report.gathered import Run
from cec_mpi.report.kinds import said_of
from cec_mpi.report.reading import read_chunks
from cec_mpi.text import printable

_VERBS = ("announce", "share", "collect", "decode")
_MICRO = 1e6
_MOST = 2_000_000  # slices: more than Perfetto opens


def trace_of(run: Run, first: int, last: int) -> bytes:
    """Return the trace of steps `first` to `last` - 1.

    Raises
    ------
    InputError
        There are none, or too many.
    """
    events: list[dict[str, Any]] = [_named(0, "master")]
    machines: set[int] = set()
    ended = 0.0
    made, collecting = 0, 0.0
    for number, moment, step, seconds in _steps(run, first, last):
        made += 1
        spent = [float(step[verb]) for verb in _VERBS]
        begin = max(ended, moment - sum(spent))
        at = begin
        for verb, took in zip(_VERBS, spent, strict=True):
            if verb == "collect":
                collecting = at
            events.append(_slice(0, f"{verb} {number}", at, took, {"step": number}))
            at += took
        ended = at
        loads, rows = step["loads"], step["rows"]
        for machine, (load, took) in enumerate(zip(loads, seconds, strict=True), start=1):
            if load > 0:
                events.append(_slice(machine, "load", collecting, load, {"step": number}))
            if took > 0:
                about = {"step": number, "rows": rows[machine - 1]}
                events.append(_slice(machine, "compute", collecting + load, took, about))
            machines.update([machine] if load > 0 or took > 0 else ())
        for kind, machine, text in step["events"]:
            name = KINDS[kind].words
            events.append(
                _instant(machine, name, collecting, {"step": number, "text": printable(text)})
            )
            machines.add(machine)
        if len(events) > _MOST:
            raise InputError(
                f"steps {first}:{last} are too many for a trace: expected fewer, as --steps "
                f"{first}:{first + max(made // 2, 1)}"
            )
    if run.steps and not made:
        raise InputError(f"{run.name} has none of the steps {first}:{last}")
    events += [_named(machine, f"machine {machine}") for machine in sorted(machines - {0})]
    return msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": events})


def _steps(run: Run, first: int, last: int) -> Iterator[tuple[int, float, dict[str, Any], Any]]:
    """Yield number, end and fields of each step of the window."""
    for chunk in read_chunks(Path(run.name) / STEPS):
        for stretch in chunk.stretches:
            loads, rows = (stretch.step[name].tolist() for name in ("load_seconds", "rows"))
            events = [said_of(event) for event in stretch.step["events"]]
            for at in range(stretch.begin, stretch.end):
                number = int(chunk.numbers["step"][at])
                if number >= last:
                    return
                if number >= first and chunk.first + at < run.steps:
                    known = {verb: chunk.numbers[f"{verb}_seconds"][at] for verb in _VERBS}
                    known |= {"loads": loads, "rows": rows, "events": events}
                    moment = float(run.numbers["time"][chunk.first + at])
                    yield number, moment, known, chunk.seconds[at].tolist()


def _slice(track: int, name: str, begin: float, took: float, about: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": 1,
        "tid": track,
        "name": name,
        "ts": round(begin * _MICRO, 3),
        "dur": round(took * _MICRO, 3),
        "args": about,
    }


def _instant(track: int, name: str, at: float, about: Any) -> dict[str, Any]:
    place = {"ph": "i", "s": "t", "pid": 1, "tid": track, "ts": round(at * _MICRO, 3)}
    return {**place, "name": name, "args": about}


def _named(track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": {"name": name}}
