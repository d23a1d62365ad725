"""What a report says at the top: what ran, three figures, and what each machine did and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cec_mpi.report.away import Absence
from cec_mpi.report.chunks import Floats
from cec_mpi.report.cyclic import unknown_of
from cec_mpi.report.gathered import BROKEN, DONE, GOING, STOPPED, Run
from cec_mpi.runtime.records.events import KINDS
from cec_mpi.text import counted, duration, few, listed, plural

_NAMED = 5  # machines, hosts or parts
_LEAST = 5e-10  # seconds that are worth saying
_ABSENCES = 3  # of a machine that are told


class Figure(NamedTuple):
    """A number that is read first.

    Attributes
    ----------
    label, value : str
    note : str
        What it is made of.
    """

    label: str
    value: str
    note: str


def _enough(run: Run) -> dict[str, str]:
    """Return the code or the copies, and how many machines are enough."""
    copies, machines = run.header.get("copies"), counted(run.machines, "machine")
    if isinstance(copies, int):
        enough = run.machines - copies + 1
        where = plural(copies, "machine")
        return {"Copies": f"each row is on {where}: any {enough} of {machines} are enough"}
    family, enough = _text(run.header, "code"), run.header["recovery"]
    return {"Code": f"{family}: any {enough} of {machines} are enough"}


def facts_of(run: Run) -> list[dict[str, str]]:
    """Return what ran, as labels and texts."""
    header, summary = run.header, run.summary
    options = summary.get("run", {}).get("options")
    happened = Counter(kind for _, kind, _, _ in run.events)
    found = {
        "Options": _options(options) if isinstance(options, dict) else "",
        "X": f"{_whole(header, 'rows')} x {_whole(header, 'columns')}, {_text(header, 'dtype')}",
        **_enough(run),
        "Scheme": _text(header, "scheme"),
        "Speeds": "learned" if header.get("speeds") in (None, "learn") else "given",
        "Shards": _text(header, "shards"),
        "Simulated": _simulated(header),
        "Hosts": few(_hosts(run), _NAMED) if _hosts(run) else "",
        "Begin": str(header["started"]),
        "End": run.last_time,
        "MPI": _text(header, "mpi_library").splitlines()[0] if header.get("mpi_library") else "",
        "Events": ", ".join(
            f"{count:,} {KINDS[kind].one if count == 1 else KINDS[kind].several}"
            for kind, count in sorted(happened.items())
        ),
    }
    return [{"label": label, "text": text} for label, text in found.items() if text]


def words_of(run: Run) -> list[str]:
    """Return how the run ended, and what its records cannot tell."""
    task = str(run.summary.get("task") or _text(run.header, "task"))
    if not run.steps:
        return ["No step has been recorded yet."]
    how = {
        DONE: "is done",
        STOPPED: "stopped, and --resume continues it",
        BROKEN: "broke off",
        GOING: "is still going",
    }[run.state]
    converged = run.summary.get("converged")
    if run.state == DONE and converged is not None:
        how = "converged" if converged else "ended without convergence"
    simulated = ["All times are simulated."] if "simulated" in run.header else []
    return [f"{'The run' if task == '?' else task} {how}.", *simulated, *unknown_of(run)]


def figures_of(run: Run) -> list[Figure]:
    """Return three figures: duration, time lost to waiting and losses, and imbalance."""
    if not run.steps:
        return []
    n, costs = run.numbers, run.costs
    whole = float(n["time"][-1])
    steps = counted(run.steps, "step")
    if run.resumes:
        after = listed((f"{each:,}" for each in run.resumes), _NAMED)
        steps += f" in {len(run.headers)} parts, resumed after {after} steps"
    lost = {
        "waiting for machines": float((n["waited_seconds"] + n["short_seconds"]).sum()),
        "stalls": float(n["stall_seconds"].sum()),
        "slower steps without lost machines (estimate)": costs.slower,
    }
    of = [f"{duration(seconds)} {name}" for name, seconds in lost.items() if seconds >= _LEAST]
    total = sum(lost.values())
    share = f" ({100 * total / whole:.1f} %)" if of and whole else ""
    return [
        Figure("Duration", duration(whole), steps),
        Figure(
            "Lost to waiting and losses",
            f"{duration(total)}{share}",
            listed(of, _NAMED) if of else "",
        ),
        _imbalance(run),
    ]


def _imbalance(run: Run) -> Figure:
    costs = run.costs
    label = "Imbalance over the best"
    if not costs.known or not costs.hindsight:
        return Figure(label, "not known", "")
    over = max(0.0, 100 * (costs.computing / costs.hindsight - 1))
    where = "" if costs.known == run.steps else f" in {counted(costs.known, 'step')}"
    return Figure(
        label,
        f"{over:.1f} %",
        f"Computing took {duration(costs.computing)}{where}; with the best shares of rows for the "
        f"speeds that machines turned out to have, {duration(costs.hindsight)}.",
    )


def warnings_of(run: Run) -> list[str]:
    """Return what a user should act on."""
    found = run.summary.get("warnings")
    return [str(each) for each in found] if isinstance(found, list) else []


def machines_of(run: Run) -> dict[str, Any]:
    """Return a table of machines: what each did and cost, the one that cost most first.

    Returns
    -------
    dict
        ``caption``, ``columns`` (each ``label`` and ``unit``: seconds, whole, percent or text) and
        ``rows``: the number of a machine and a value for each column. Columns of nothing but zeros
        are left out.
    """
    costs, known = run.costs, run.absences
    numbers = range(1, run.machines + 1)
    rows, seconds = (
        each[: run.bins.bins].sum(axis=0) for each in (run.bins.rows, run.bins.seconds)
    )
    left: dict[int, list[Absence]] = {}
    for each in known.known:
        left.setdefault(each.machine, []).append(each)
    held_up = costs.cost
    table: dict[str, tuple[str, Any]] = {
        "Held the run up": ("seconds", held_up),
        "of it last": ("seconds", costs.excess),
        "of it reading": ("seconds", costs.loads),
        "of it stalls": ("seconds", costs.stalls),
        "of it away": ("seconds", costs.away),
        "Not answered": ("whole", [known.unanswered[n] for n in numbers]),
        "Late": ("whole", [known.late[n] for n in numbers]),
        "Last in steps": ("whole", costs.slowest),
        "Over plan": ("seconds", np.maximum(costs.over_plan, 0)),
        "Computed": ("seconds", seconds),
        "Rows": ("whole", rows),
        "Available": ("percent", present_of(run) / run.steps),
        "Left": ("text", [_absences(left.get(n, []), run) for n in numbers]),
    }
    kept = {name: each for name, each in table.items() if any(map(bool, each[1]))}
    first = held_up if "Held the run up" in kept else np.zeros(len(held_up))
    answers = np.array([known.unanswered[n] + known.late[n] for n in numbers])
    order = (
        np.lexsort((-answers, -first)) if not costs.uncounted else np.lexsort((-first, -answers))
    )
    return {
        "caption": "Machines, the one with the fewest answers first"
        if costs.uncounted
        else "Machines, the one that held the run up longest first",
        "columns": [{"label": name, "unit": unit} for name, (unit, _) in kept.items()],
        "rows": [
            [int(n) + 1, *(v[n] if unit == "text" else float(v[n]) for unit, v in kept.values())]
            for n in order
        ],
    }


def _absences(left: list[Absence], run: Run) -> str:
    """Say when a machine left, why, and when it came back."""
    said = []
    for each in left[:_ABSENCES]:
        back = "not back" if each.back is None else f"back in step {each.back:,}"
        if each.back == each.step:
            back = "back in the same step"
        if each.back is None and run.state == GOING:
            back = "not back so far"
        said.append(f"step {each.step:,} ({each.why}), {back}")
    if len(left) > len(said):
        said.append(f"{len(left) - len(said):,} times more")
    return "; ".join(said)


def present_of(run: Run) -> Floats:
    """Return in how many steps each machine was available from begin to end."""
    present = run.bins.present[: run.bins.bins].sum(axis=0)
    for machine, steps in run.absences.cut_short.items():
        present[machine - 1] -= steps
    return np.asarray(present, np.float64)


def _simulated(header: Mapping[str, Any]) -> str:
    """Return what the rows of a simulated run stand for; an empty text if it was not simulated."""
    stands_for = header.get("simulated")
    if not isinstance(stands_for, dict):
        return ""
    rows, columns = _whole(stands_for, "rows"), _whole(stands_for, "columns")
    return f"the times and bytes of X with {rows} x {columns} numbers, not measured"


def _hosts(run: Run) -> list[str]:
    return list(dict.fromkeys(host for hosts in run.hosts.values() for host in hosts))


def _options(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())[:300]


def _text(header: dict[str, Any], name: str) -> str:
    return str(header.get(name, "?"))[:80]


def _whole(header: dict[str, Any], name: str) -> str:
    return f"{header[name]:,}" if name in header else "?"
