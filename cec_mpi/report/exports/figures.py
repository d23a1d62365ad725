"""The figures of a report for papers, each as SVG and as PNG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from cec_mpi.core.plan.assignment import Block
from cec_mpi.drawing.lanes import draw
from cec_mpi.drawing.pictures import saved, style
from cec_mpi.drawing.shares import Shares
from cec_mpi.text import few

_ASSIGNMENTS = 6  # of a run that are drawn
_MOST_DRAWN = 2000  # machines
_LONGEST_NAME = 11  # of a host, beside its machine's number and speed


def figures_of(data: Mapping[str, Any], steps: Iterable[int] = ()) -> dict[str, bytes]:
    """Return the figures of runs, by the names of their files.

    Parameters
    ----------
    data : mapping
        What a page of these runs is given.
    steps : iterable of int
        Whose assignments are drawn too.

    Returns
    -------
    dict of str to bytes
        ``availability``, ``makespan``, ``speeds``, ``parts``, ``progress`` and
        ``assignment-STEP``, as far as the records have them; with several runs a number
        before the name, and ``makespans`` of all of them.

    Raises
    ------
    InputError
        There is no matplotlib.
    """
    with style():
        return {
            f"{name}.{kind}": saved(figure, kind, name)
            for name, figure in _figures(data, frozenset(steps))
            for kind in ("svg", "png")
        }


def _figures(data: Mapping[str, Any], steps: AbstractSet[int]) -> Iterator[tuple[str, Any]]:
    """Each figure and its name."""
    from cec_mpi.report.exports import plots

    runs = data["runs"]
    for number, run in enumerate(runs, start=1):
        before = f"{number}-" if len(runs) > 1 else ""
        for plot in (
            plots.availability,
            plots.makespan,
            plots.speeds,
            plots.parts,
            plots.progress,
        ):
            figure = plot(run, data)
            if figure is not None:
                yield before + plot.__name__, figure
        if run["machines"] <= _MOST_DRAWN:
            for each in chosen(run["assignments"], steps):
                yield f"{before}assignment-{each['step']}", _assignment(run, each)
    if len(runs) > 1:
        yield "makespans", plots.makespans(data)


def chosen(
    assignments: Sequence[Mapping[str, Any]], steps: AbstractSet[int] = frozenset()
) -> list[Mapping[str, Any]]:
    """Return assignments that are drawn: first, last, some between, and those of these steps.

    Examples
    --------
    >>> [each["step"] for each in chosen([{"step": t} for t in range(0, 101)])]
    [0, 20, 40, 60, 80, 100]
    >>> [each["step"] for each in chosen([{"step": t, "until": t} for t in range(9)], {3, 40})]
    [0, 1, 3, 4, 6, 8]
    """
    most = min(_ASSIGNMENTS, len(assignments))
    last = len(assignments) - 1
    drawn = {k * last // max(1, most - 1) for k in range(most)}
    for at, each in enumerate(assignments if steps else ()):
        if any(each["step"] <= step <= each["until"] for step in steps):
            drawn.add(at)
    return [assignments[at] for at in sorted(drawn)]


def _assignment(run: Mapping[str, Any], each: Mapping[str, Any]) -> Any:
    """Return an assignment as `plan --figure` draws it."""
    machines = run["machines"]
    available = tuple(each["available"])
    away = sorted(set(range(1, machines + 1)) - set(available))
    until = each.get("until") or each["step"]
    steps = f"step {each['step']}" if until == each["step"] else f"steps {each['step']} to {until}"
    title = f"Machine{'s' * (len(away) > 1)} {few(away, 6)} not available"
    moved = {int(n): [(a, b) for a, b in spans] for n, spans in each.get("moved", {}).items()}
    speeds = each.get("speeds") or []
    shares = Shares(
        machines,
        run["rows"],
        available,
        [Block(start, stop, tuple(members)) for start, stop, members in each["blocks"]],
        title if away else "All machines available",
        "in brackets: learned speed, rows per second" if any(speeds) else "",
        [_label(n, run["names"], speeds) for n in range(1, machines + 1)],
        moved,
    )
    return draw([shares], f"Who computed which rows, {steps}")


def _label(n: int, names: Sequence[str], speeds: Sequence[float | None]) -> str:
    name = names[n - 1] if n <= len(names) else ""
    speed = speeds[n - 1] if n <= len(speeds) else None
    name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
    texts = [str(n), name, "" if speed is None else f"({speed:.3g})"]
    return " ".join(filter(None, texts))
