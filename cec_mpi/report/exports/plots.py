"""Plots of a run over its steps, by matplotlib: figures that a paper can take as they are."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.drawing.pictures import shortened

Floats = NDArray[np.float64]
Run = Mapping[str, Any]

_WIDTH = 7.0  # inches, of a page with two columns
_STATES = 16  # cells below say a state, those from it on a share
_SHARES = 239
_FEW, _ALL = "#d6e4f2", "#114477"  # of the rows of its shard
_EDGE = "#888888"
_LABELLED = 12  # machines with a line and a name each
_LINES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
_MAKESPANS = {
    "measured": ("#4477aa", "-", "measured"),
    "predicted": ("#ee6677", "--", "predicted"),
    "hindsight": ("#228833", ":", "best in hindsight"),
}


def availability(run: Run, data: Mapping[str, Any]) -> Any:
    """Machines by steps: who was available and computed how much, and what happened."""
    from matplotlib import colors
    from matplotlib.patches import Patch

    cells = _cells(run)
    if not cells.size:
        return None
    machines = run["machines"]
    figure, axes = _axes(max(2.2, min(7.0, 1.0 + 0.16 * machines)))
    low, high = np.array(colors.to_rgb(_FEW)), np.array(colors.to_rgb(_ALL))
    image = np.ones((*cells.shape, 3))
    share = np.clip((cells.astype(float) - _STATES) / _SHARES, 0, 1)
    image[:] = low + share[..., None] * (high - low)
    present = []
    for k, state in enumerate(data["states"]):
        where = cells == k
        if where.any():
            image[where] = colors.to_rgb(state["colour"])
            present.append(
                Patch(facecolor=state["colour"], edgecolor=_EDGE, label=shortened(state["words"]))
            )
    present.append(Patch(facecolor=_FEW, label="computed few rows"))
    present.append(Patch(facecolor=_ALL, label="computed the whole shard"))
    left, right = _ends(run)
    axes.imshow(
        image,
        aspect="auto",
        interpolation="nearest",
        extent=(left, right, machines + 0.5, 0.5),
    )
    marks = _mark(axes, run, data, on_machines=True)
    axes.set_ylabel("machine")
    axes.set_xlabel("step")
    axes.yaxis.get_major_locator().set_params(integer=True)
    _legend(figure, [*present, *marks])
    return figure


def makespan(run: Run, data: Mapping[str, Any]) -> Any:
    """What steps took, beside what was predicted and the best in hindsight."""
    figure, axes = _axes(2.8)
    handles = []
    for name, (colour, style, words) in _MAKESPANS.items():
        handles += _curve(axes, run, name, colour, style, words, band=name == "measured")
    if not handles:
        return None
    _finish(figure, axes, run, data, handles, "makespan (s)")
    return figure


def makespans(data: Mapping[str, Any]) -> Any:
    """What the steps of several runs took, on common axes."""
    figure, axes = _axes(2.8)
    handles = []
    for k, run in enumerate(data["runs"]):
        words = f"run {k + 1}: {run['name']}"
        handles += _curve(axes, run, "measured", _LINES[k % len(_LINES)], "-", words, band=True)
    axes.set_xlabel("step")
    axes.set_ylabel("makespan (s)")
    axes.set_ylim(bottom=0)
    _legend(figure, handles, columns=1)
    return figure


def speeds(run: Run, data: Mapping[str, Any]) -> Any:
    """Learned speeds by machine: lines, or a map where there are many machines."""
    found = run.get("speeds")
    if not found or not found["bins"]:
        return None
    values = np.array(found["machines"], dtype=float)
    steps = _steps(run)[np.array(found["bins"], dtype=int)]
    if not np.isfinite(values).any():
        return None
    figure, axes = _axes(2.8)
    if len(values) > _LABELLED:
        edges = np.append(steps, max(steps[-1] + 1, _ends(run)[1]))
        shown = axes.pcolormesh(
            edges, np.arange(len(values) + 1) + 0.5, np.ma.masked_invalid(values), rasterized=True
        )
        figure.colorbar(shown, ax=axes, label="rows per second")
        axes.invert_yaxis()
        axes.set_ylabel("machine")
        axes.set_xlabel("step")
        return figure
    handles = []
    for n, line in enumerate(values, start=1):
        colour, style = _LINES[(n - 1) % len(_LINES)], ("-", "--")[(n - 1) // len(_LINES) % 2]
        handles += axes.step(
            steps, line, where="post", color=colour, linestyle=style, lw=1.2, label=f"machine {n}"
        )
    _finish(figure, axes, run, data, handles, "learned speed (rows/s)")
    return figure


def parts(run: Run, data: Mapping[str, Any]) -> Any:
    """Where the time of steps went, one part upon the other: of the longest step of each bin."""
    longest = {
        name: np.nan_to_num(_numbers(values["value" if "value" in values else "top"]))
        for name, values in run["parts"].items()
    }
    longest = {name: values for name, values in longest.items() if values.sum() > 0}
    if not longest:
        return None
    figure, axes = _axes(2.8)
    edges = np.append(_steps(run) - 0.5, _ends(run)[1])
    floor = np.zeros(len(edges) - 1)
    handles = []
    for k, (name, values) in enumerate(longest.items()):
        top = floor + values
        handles.append(
            axes.stairs(
                top, edges, baseline=floor, fill=True, color=_LINES[k % len(_LINES)], label=name
            )
        )
        floor = top
    label = "seconds per step" if run["bin"] == 1 else "seconds, longest step of each bin"
    _finish(figure, axes, run, data, handles, label)
    return figure


def progress(run: Run, data: Mapping[str, Any]) -> Any:
    """What a solver reports of itself, as a residual."""
    found = [each for each in run.get("progress") or [] if each["step"]]
    if not found:
        return None
    figure, axes = _axes(2.8)
    handles = []
    for k, each in enumerate(found):
        handles += axes.plot(
            each["step"],
            _numbers(each["value"]),
            color=_LINES[k % len(_LINES)],
            lw=1.2,
            label=shortened(each["name"]),
        )
    if all(each.get("log") for each in found):
        axes.set_yscale("log")
    marks = _mark(axes, run, data)
    axes.set_xlabel("step")
    _legend(figure, [*handles, *marks])
    return figure


def _axes(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def _curve(
    axes: Any, run: Run, name: str, colour: str, style: str, words: str, *, band: bool
) -> list[Any]:
    """A series over steps: its median by bin, and from least to most around it."""
    series = run["series"].get(name)
    if not series:
        return []
    middle = _numbers(series["value" if "value" in series else "mid"])
    if not np.isfinite(middle).any():
        return []
    steps = _steps(run)
    if band and "min" in series:
        low, high = _numbers(series["min"]), _numbers(series["max"])
        axes.fill_between(steps, low, high, color=colour, alpha=0.2, lw=0)
        words += " (median, least to most)"
    lines: list[Any] = axes.plot(
        steps, middle, color=colour, linestyle=style, lw=1.2, label=shortened(words)
    )
    return lines


def _finish(
    figure: Any, axes: Any, run: Run, data: Mapping[str, Any], handles: list[Any], label: str
) -> None:
    marks = _mark(axes, run, data)
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.set_xlim(*_ends(run))
    _legend(figure, [*handles, *marks])


def _mark(axes: Any, run: Run, data: Mapping[str, Any], on_machines: bool = False) -> list[Any]:
    """Mark events: on their machines, or else above the plot; returns one mark of each kind."""
    from matplotlib.patheffects import withStroke

    markers = {"!": "$!$"}
    marks = []
    for k, kind in enumerate(data["kinds"]):
        events = [event for event in run["events"] if event[1] == k]
        if not events:
            continue
        placed = [event for event in events if on_machines and event[2]]
        above = [event for event in events if not (on_machines and event[2])]
        look = {
            "linestyle": "none",
            "marker": markers.get(kind["mark"], kind["mark"]),
            "color": kind["colour"],
            "markersize": 5,
            "clip_on": False,
            "label": shortened(kind["words"]),
        }
        if on_machines:
            halo = withStroke(linewidth=2.5, foreground="white")
            look |= {"path_effects": [halo]}
        if kind["mark"] in "x+!_":
            look |= {"markeredgecolor": kind["colour"], "markeredgewidth": 1.2}
        made = []
        if placed:
            made += axes.plot(
                [event[0] for event in placed], [event[2] for event in placed], **look
            )
        if above:
            across = axes.get_xaxis_transform()
            made += axes.plot(
                [event[0] for event in above], [1.03] * len(above), transform=across, **look
            )
        marks.append(made[0])
    return marks


def _legend(figure: Any, handles: Sequence[Any], columns: int = 4) -> None:
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns)


def _cells(run: Run) -> NDArray[np.uint8]:
    """The map of machines by bins."""
    size = run["map"]
    cells = np.frombuffer(base64.b64decode(size["cells"]), dtype=np.uint8)
    return cells.reshape(size["rows"], size["bins"])


def _steps(run: Run) -> Floats:
    return np.array(run["at"], dtype=float)


def _ends(run: Run) -> tuple[float, float]:
    """Where the axis of steps begins and ends."""
    return run["at"][0] - 0.5, run["at"][-1] + run["bin"] - 0.5


def _numbers(values: Sequence[float | None]) -> Floats:
    """Numbers, with NaN where there is none."""
    return np.array(values, dtype=float)
