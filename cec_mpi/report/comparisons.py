"""What the steps of a run would have taken with other shares of rows."""

from __future__ import annotations

from typing import Any

from cec_mpi.report.gathered import Run
from cec_mpi.text import counted, duration, listed


def against(mine: float, other: float) -> str:
    """Return by how much a time is above or below another one.

    Examples
    --------
    >>> against(1.1, 1.0), against(1.0, 2.0), against(1.0, 1.0)
    ('100 ms (10.0 %) more', '1.00 s (50.0 %) less', 'as long')
    """
    lost = mine - other
    if not other or abs(lost) < 0.0005 * other:
        return "as long"
    share = f"({100 * abs(lost) / other:.1f} %)"
    return f"{duration(abs(lost))} {share} {'more' if lost > 0 else 'less'}"


def comparisons_of(run: Run) -> list[dict[str, Any]]:
    """Return other shares of the rows, as far as the records tell what they would have taken.

    Returns
    -------
    list of dict
        ``label``, ``note`` (what it is), ``steps`` (how many tell), ``theirs`` and ``mine``
        (seconds), ``theirs_of`` and ``mine_of`` (what of, where it is more than computing) and
        ``text`` (by how much this run took more or less).
    """
    costs = run.costs
    found: list[dict[str, Any]] = []
    if not costs.compared:
        return found
    if run.header.get("copies") is None:
        found.append(
            _row(
                "Cyclic",
                "The coded scheme without speeds: each available machine computes as many rows as "
                "any other.",
                costs.compared,
                (costs.measured, {}),
                (costs.cyclic, {}),
            )
        )
    reload = costs.reload_seconds(bytes_per_row(run.header)) if costs.shared_anew else 0.0
    if reload is None:
        return found
    stalls = float(run.numbers["stall_seconds"].sum())
    mine = {"reading": costs.waited_for_loads if costs.shared_anew else 0.0, "stalls": stalls}
    found.append(
        _row(
            "Equal shares without a code",
            "Each available machine holds one equal piece of X. If machines leave or come, the "
            "others read other pieces. An estimate in favour of equal shares: only the stalls of "
            "this run are counted.",
            costs.compared,
            (costs.measured, mine),
            (costs.equal, {f"reading ({counted(costs.shared_anew, 'time')})": reload}),
        )
    )
    return found


def unknown_of(run: Run) -> list[str]:
    """Return what is not known of these, and why."""
    costs = run.costs
    if costs.uncounted:
        return [
            "With stragglers the records lack the answers that did not count, so what other shares "
            "would have taken, and which machine cost most, is not known."
        ]
    if not costs.compared:
        return [
            "What equal loads would have taken is not known: in no step did all available machines "
            "compute enough rows."
        ]
    if costs.shared_anew and costs.reload_seconds(bytes_per_row(run.header)) is None:
        return [
            "Equal shares without a code would have computed for "
            f"{duration(costs.equal)} and read other shares {counted(costs.shared_anew, 'time')}, "
            "which this run has not measured."
        ]
    return []


def bytes_per_row(header: dict[str, Any]) -> int:
    """Return the bytes of a row of X."""
    columns, dtype = header.get("columns"), header.get("dtype")
    if type(columns) is not int or columns < 1:
        return 0
    return columns * (4 if dtype == "float32" else 8)


Times = tuple[float, dict[str, float]]


def _row(label: str, note: str, steps: int, mine: Times, theirs: Times) -> dict[str, Any]:
    """Return a comparison of times, each of computing and of other parts by name."""
    sums = [computing + sum(others.values()) for computing, others in (mine, theirs)]
    return {
        "label": label,
        "note": note,
        "steps": steps,
        "theirs": sums[1],
        "mine": sums[0],
        "theirs_of": _made_of(theirs),
        "mine_of": _made_of(mine),
        "text": against(*sums),
    }


def _made_of(times: Times) -> str:
    """Return the parts of a time; empty if it is all computing."""
    computing, others = times
    parts = [f"{duration(seconds)} {name}" for name, seconds in others.items() if seconds > 0]
    return listed([f"{duration(computing)} computing", *parts], 9) if parts else ""
