"""Where the time of a run went: of each step, and of all of it, in parts that add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cec_mpi.report.bins import binned, listed
from cec_mpi.report.gathered import Run
from cec_mpi.report.reading import Floats

_LONGEST = 10  # steps that have a table of their own
_PARTS = {
    "compute": ("Computing", "of each step the time of the machine that took longest"),
    "load": ("Reading shards", "as far as steps waited for it"),
    "talk": ("Passing on", "announcing, sharing, collecting and decoding"),
    "stall": ("Stalls", "steps held up by machines that were lost, given up, late or wrong"),
    "waiting": ("Waiting for machines", "too few were available"),
    "outside": (
        "Outside of steps",
        "before the first one and between them: start, the task's own work, checkpoints",
    ),
}
_TALK = ("announce", "share", "collect", "decode")


def parts_of(run: Run) -> dict[str, Floats]:
    """Where the time of each step went, in seconds.

    Machines compute and load while rank 0 collects: what is left of that is the wire, and stalls.
    Times of machines count as far as rank 0 waited, so that parts are not more than the step.
    """
    n = run.numbers
    compute = np.minimum(n["measured_makespan"], n["collect_seconds"])
    load = np.minimum(n["load_seconds"], n["collect_seconds"] - compute)
    left = n["collect_seconds"] - compute - load
    stall = np.minimum(n["stall_seconds"], left)
    return {
        "announce": n["announce_seconds"],
        "share": n["share_seconds"],
        "compute": compute,
        "collect": left - stall,
        "stall": stall,
        "decode": n["decode_seconds"],
        "load": load,
        "waiting": n["waited_seconds"],
    }


def sum_of(run: Run) -> dict[str, Any]:
    """All of a run, until its last step ended, as parts that add up.

    Returns
    -------
    dict
        ``whole`` (text) and ``parts``: dicts of ``part``, ``label``, ``note``, ``seconds``,
        ``text`` and ``share``, without those whose text is 0.
    """
    spent = {name: float(values.sum()) for name, values in parts_of(run).items()}
    spent["talk"] = sum(spent.pop(name) for name in _TALK)
    spent["outside"] = max(float(run.numbers["time"][-1]) - sum(spent.values()), 0.0)
    found = {name: spent[name] for name in _PARTS if spent[name] > 0}
    whole, texts = added(list(found.values()))
    total = sum(found.values())
    return {
        "whole": whole,
        "parts": [
            {
                "part": name,
                "label": _PARTS[name][0],
                "note": _PARTS[name][1],
                "seconds": seconds,
                "text": text,
                "share": seconds / total,
            }
            for (name, seconds), text in zip(found.items(), texts, strict=True)
            if text.strip("0. msh") or len(found) == 1
        ],
    }


def added(seconds: Sequence[float]) -> tuple[str, list[str]]:
    """A sum and its parts as texts that add up, digit by digit.

    Examples
    --------
    >>> added([1.004, 2.0046, 0.004])
    ('3.01 s', ['1.00 s', '2.01 s', '0.00 s'])
    >>> added([0.0123, 0.0005])
    ('12.80 ms', ['12.30 ms', '0.50 ms'])
    >>> added([3600.0, 125.4])
    ('1 h 2 min 5 s', ['1 h 0 min 0 s', '2 min 5 s'])
    >>> added([])
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
    lacking = round(float(exact.sum())) - int(units.sum())
    for at in np.argsort(units - exact, kind="stable")[: max(lacking, 0)].tolist():
        units[at] += 1

    def text(count: float) -> str:
        if name == "s" and not digits:
            minutes, rest = divmod(int(count), 60)
            hours, minutes = divmod(minutes, 60)
            before = f"{hours} h " if hours else ""
            return f"{before}{minutes} min {rest} s" if hours or minutes else f"{rest} s"
        return f"{count / 10**digits:.{digits}f} {name}"

    return text(float(units.sum())), [text(float(each)) for each in units]


def usual_and_longest(run: Run, width: int) -> dict[str, dict[str, list[float | None]]]:
    """The parts by bins: each part's median, and all parts of the step that took longest.

    Where a bin is a step there is ``value`` alone.
    """
    parts = parts_of(run)
    if width == 1 or not run.steps:
        return {name: {"value": listed(values)} for name, values in parts.items()}
    total = sum(parts.values(), np.zeros(run.steps))
    bins = -(-run.steps // width)
    padded = np.full(bins * width, -1.0)
    padded[: run.steps] = total
    longest = padded.reshape(bins, width).argmax(axis=1) + np.arange(bins) * width
    found = {}
    for name, values in parts.items():
        found[name] = {"mid": binned(values, width)["mid"], "top": listed(values[longest])}
    return found


def longest_of(run: Run) -> list[dict[str, Any]]:
    """The steps that took longest, what of, and what happened in them, the longest first."""
    parts = parts_of(run)
    total = sum(parts.values(), np.zeros(run.steps))
    most = np.argsort(-total, kind="stable")[:_LONGEST].tolist()
    return [
        {
            "step": int(run.numbers["step"][at]),
            "seconds": float(total[at]),
            "parts": {name: float(values[at]) for name, values in parts.items() if values[at] > 0},
        }
        for at in most
    ]


def made_with(run: Run) -> list[tuple[int, int, float]]:
    """How many machines were available in how many steps, and their median makespan."""
    count, took = run.numbers["available"], run.numbers["measured_makespan"]
    return [
        (int(each), int((count == each).sum()), float(np.median(took[count == each])))
        for each in np.unique(count).tolist()
    ]
