"""Parts of the duration of a run and of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cec_mpi.report.absences import DEPARTURES
from cec_mpi.report.bins import bin_series, to_json_numbers
from cec_mpi.report.chunks import Floats
from cec_mpi.report.recorded_run import Run
from cec_mpi.text import format_count, format_duration, join_names, plural

_MAX_LONGEST = 10  # steps in the table of the longest steps
_PARTS = {
    "compute": ("Computing", "the slowest machine of each step"),
    "load": ("Reading shards", "only the time by which it delays steps"),
    "communication": ("Communication", "announcing, sharing, collecting and decoding"),
    "stall": ("Stalls", "lost, unresponsive, wrong and late machines"),
    "waiting": ("Waiting for machines", ""),
    "outside": ("Outside steps", "start, the task's own work, checkpoints"),
}
_COMMUNICATION_PARTS = ("announce", "share", "collect", "decode")


def step_parts(run: Run) -> dict[str, Floats]:
    """Return the seconds of each part of each step.

    Machines compute and load while rank 0 collects; the rest of this time is communication, stalls
    and waiting. Times of machines are limited to the time that rank 0 waited for them.
    """
    columns = run.step_columns
    collect = columns["collect_seconds"]
    compute = np.minimum(columns["measured_makespan"], collect)
    load = np.minimum(columns["load_seconds"], collect - compute)
    remaining = collect - compute - load
    stall = np.minimum(columns["stall_seconds"], remaining)
    shortage = np.minimum(columns["shortage_seconds"], remaining)
    return {
        "announce": columns["announce_seconds"],
        "share": columns["share_seconds"],
        "compute": compute,
        "collect": remaining - stall - shortage,
        "stall": stall,
        "decode": columns["decode_seconds"],
        "load": load,
        "waiting": columns["waited_seconds"] + shortage,
    }


def time_breakdown(run: Run) -> dict[str, Any]:
    """Return the parts of the duration of a run, until the end of its last step.

    Returns
    -------
    dict
        ``parts``: dicts of ``part``, ``label``, ``note``, ``seconds``, ``text`` and ``share``.
        Parts that round to 0 are omitted.
    """
    totals = {name: float(values.sum()) for name, values in step_parts(run).items()}
    notes = {name: note for name, (_, note) in _PARTS.items()} | {"waiting": _waiting_note(run)}
    totals["communication"] = sum(totals.pop(name) for name in _COMMUNICATION_PARTS)
    totals["outside"] = float(run.step_columns["time"][-1]) - sum(totals.values())
    parts = {name: totals[name] for name in _PARTS if totals[name] > 0}
    _, texts = format_sum(list(parts.values()))
    total = sum(parts.values())
    return {
        "parts": [
            {
                "part": name,
                "label": _PARTS[name][0],
                "note": notes[name],
                "seconds": seconds,
                "text": text,
                "share": seconds / total,
            }
            for (name, seconds), text in zip(parts.items(), texts, strict=True)
            if text.strip("0. msh") or len(parts) == 1
        ],
    }


def _waiting_note(run: Run) -> str:
    """Return a note about the steps that waited, and the longest wait with the lost machines."""
    waiting_seconds = step_parts(run)["waiting"]
    longest = int(waiting_seconds.argmax())
    seconds, step = float(waiting_seconds[longest]), int(run.step_columns["step"][longest])
    text = f"too few were available for {format_count(int((waiting_seconds > 0).sum()), 'step')}"
    text += f"; longest {format_duration(seconds)} for step {step:,}"
    if longest in run.waits:
        wait = run.waits[longest]
        lost = [
            f"{n} ({reason})" for n, reason in wait.absence_reasons.items() if reason in DEPARTURES
        ]
        text += f", which needed {plural(wait.missing, 'more machine')}"
        if lost:
            noun = "machine" if len(lost) == 1 else "machines"
            text += f"; missing: {noun} {join_names(lost, 5)}"
    return text


def format_sum(seconds: Sequence[float]) -> tuple[str, list[str]]:
    """Return a sum and its terms as text; the rounded terms add up to the rounded sum.

    Examples
    --------
    >>> format_sum([1.004, 2.0046, 0.004])
    ('3.01 s', ['1.00 s', '2.01 s', '0.00 s'])
    >>> format_sum([0.0123, 0.0005])
    ('12.80 ms', ['12.30 ms', '0.50 ms'])
    >>> format_sum([3600.0, 125.4])
    ('1 h 2 min 5 s', ['1 h 0 min 0 s', '2 min 5 s'])
    >>> format_sum([])
    ('0.00 ms', [])
    """
    total = sum(seconds)
    if total < 1:
        factor, name, digits = 1e3, "ms", 2 if total < 0.1 else 1
    else:
        factor, name, digits = 1.0, "s", 2 if total < 100 else 0
    scale = factor * 10**digits
    exact = np.array(seconds, np.float64) * scale
    units = np.floor(exact + 1e-9)
    missing_units = round(float(exact.sum())) - int(units.sum())
    for k in np.argsort(units - exact, kind="stable")[: max(missing_units, 0)].tolist():
        units[k] += 1

    def format_units(count: float) -> str:
        if name == "s" and not digits:
            minutes, rest = divmod(int(count), 60)
            hours, minutes = divmod(minutes, 60)
            prefix = f"{hours} h " if hours else ""
            return f"{prefix}{minutes} min {rest} s" if hours or minutes else f"{rest} s"
        return f"{count / 10**digits:.{digits}f} {name}"

    return format_units(float(units.sum())), [format_units(float(count)) for count in units]


def parts_by_bin(run: Run, width: int) -> dict[str, dict[str, list[float | None]]]:
    """Return each part by bin: its ``median``, and its value in the ``longest`` step.

    If bins have one step, each part has only ``value``.
    """
    parts = step_parts(run)
    if width == 1 or not run.steps:
        return {name: {"value": to_json_numbers(values)} for name, values in parts.items()}
    total = sum(parts.values(), np.zeros(run.steps))
    bins = -(-run.steps // width)
    padded = np.full(bins * width, -1.0)
    padded[: run.steps] = total
    longest = padded.reshape(bins, width).argmax(axis=1) + np.arange(bins) * width
    series = {}
    for name, values in parts.items():
        medians = bin_series(values, width)["median"]
        series[name] = {"median": medians, "longest": to_json_numbers(values[longest])}
    return series


def longest_steps(run: Run) -> list[dict[str, Any]]:
    """Return the longest steps with their parts, in descending order."""
    parts = step_parts(run)
    total = sum(parts.values(), np.zeros(run.steps))
    longest = np.argsort(-total, kind="stable")[:_MAX_LONGEST].tolist()
    return [
        {
            "step": int(run.step_columns["step"][index]),
            "seconds": float(total[index]),
            "parts": {
                name: float(values[index]) for name, values in parts.items() if values[index] > 0
            },
        }
        for index in longest
    ]
