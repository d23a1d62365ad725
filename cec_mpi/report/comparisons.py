"""What a run's steps would have taken otherwise, beside what the same steps took."""

from __future__ import annotations

from typing import Any

from cec_mpi.report.gathered import Run
from cec_mpi.text import counted, listed


def duration(seconds: float) -> str:
    """Seconds as people say them.

    Examples
    --------
    >>> duration(0.00123), duration(12.34), duration(150), duration(7300)
    ('1.23 ms', '12.3 s', '2 min 30 s', '2 h 1 min')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def against(mine: float, other: float) -> str:
    """How much more or less than another time, in words.

    Examples
    --------
    >>> against(1.1, 1.0), against(1.0, 2.0), against(1.0, 1.0)
    ('100 ms (10.0 %) more', '1 s (50.0 %) less', 'as long')
    """
    lost = mine - other
    if not other or abs(lost) < 0.0005 * other:
        return "as long"
    share = f"({100 * abs(lost) / other:.1f} %)"
    return f"{duration(abs(lost))} {share} {'more' if lost > 0 else 'less'}"


def comparisons_of(run: Run) -> list[dict[str, Any]]:
    """Other ways to share out the rows, as far as the records tell what they would have taken.

    Returns
    -------
    list of dict
        ``label``, ``note`` (what it is), ``steps`` (how many tell), ``theirs`` and ``mine``
        (seconds), ``theirs_of`` and ``mine_of`` (what of, where it is more than computing) and
        ``text`` (by how much this run took more or less).
    """
    costs = run.costs
    found = []
    if costs.known:
        found.append(
            _row(
                "The optimum in hindsight",
                "For each step the shares that would have finished first, at the speeds that "
                "machines turned out to have in it. Nobody knows these beforehand.",
                costs.known,
                (costs.computing, {}),
                (costs.hindsight, {}),
            )
        )
    if not costs.compared:
        return found
    found.append(
        _row(
            "Cyclic",
            "The coded scheme that takes no notice of speeds: each available machine computes as "
            "many rows as any other.",
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
            "Each available machine holds one equal piece of X, and no row is on two of them: when "
            "machines leave or come, the others read other pieces. An estimate, in its favour: it "
            "counts no stalls, and this run all of its own.",
            costs.compared,
            (costs.measured, mine),
            (costs.equal, {f"reading ({counted(costs.shared_anew, 'time')})": reload}),
        )
    )
    return found


def unknown_of(run: Run) -> list[str]:
    """What cannot be told of these, and why."""
    costs = run.costs
    if costs.uncounted:
        return [
            "What the optimum in hindsight, the cyclic assignment and equal shares would have cost "
            f"cannot be told with answers that do not count (stragglers: {costs.uncounted})."
        ]
    if not costs.compared:
        return [
            "What equal loads would have cost is not known: in no step did all available machines "
            "compute enough rows to tell."
        ]
    if costs.shared_anew and costs.reload_seconds(bytes_per_row(run.header)) is None:
        return [
            "Equal shares without a code would have computed for "
            f"{duration(costs.equal)} and shared X out anew {counted(costs.shared_anew, 'time')}; "
            "what reading takes, this run has not shown."
        ]
    return []


def bytes_per_row(header: dict[str, Any]) -> int:
    """Of X."""
    columns, dtype = header.get("columns"), header.get("dtype")
    if type(columns) is not int or columns < 1:
        return 0
    return columns * (4 if dtype == "float32" else 8)


Times = tuple[float, dict[str, float]]


def _row(label: str, note: str, steps: int, mine: Times, theirs: Times) -> dict[str, Any]:
    """Of seconds of computing and of other things, by their names."""
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
    """What a time is made of; empty where it is all computing."""
    computing, others = times
    parts = [f"{duration(seconds)} {name}" for name, seconds in others.items() if seconds > 0]
    return listed([f"{duration(computing)} computing", *parts], 9) if parts else ""
