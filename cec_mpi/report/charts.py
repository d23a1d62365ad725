"""The charts of a page, which one script draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cec_mpi.report.summary import PARTS, letter_of

Run = Mapping[str, Any]
Line = dict[str, Any]

_MEASURED, _HINDSIGHT, _FAINT = "var(--measured)", "var(--hindsight)", "var(--muted)"
_COLOURS = 8  # of runs beside each other


def charts_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the charts of a page, in their order.

    Parameters
    ----------
    runs : sequence of mapping
        As `data_of` gives them.

    Returns
    -------
    list of dict
        ``title``, ``note``, ``unit`` (seconds, bytes, rate, percent or number), ``lines``, and
        where they are ``log`` (the axis is logarithmic), ``layers`` (lines on one another) or
        ``height`` (pixels). A line has ``run`` (its number), ``label``, ``paint`` (a colour of
        CSS) and ``y``, and may have what the script's `chart` says. A chart of speeds has ``run``
        in place of lines: which are drawn depends on the machine that is picked.
    """
    return [chart for chart in _all(runs) if chart.get("lines") or chart.get("run")]


def _all(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    binned = any(run["bin"] > 1 for run in runs)
    spread = " A line is the median of each bin, the shade around it the range."
    yield {
        "title": "Makespan",
        "note": f"Time of the machine that takes longest.{spread * binned}",
        "unit": "seconds",
        "height": 230,
        "lines": [
            *_lines(runs, "measured", "measured", width=1.75),
            *_lines(runs, "predicted", "predicted", _FAINT, dash=[2, 3], beside=True),
            *_lines(runs, "hindsight", "best in hindsight", _HINDSIGHT, dash=[7, 3]),
        ],
    }
    if len(runs) > 1:
        yield {
            "title": "Time since the start",
            "unit": "seconds",
            "lines": [_line(runs, run, "", _MEASURED, y=run["time"]) for run in runs],
        }
    for number, run in enumerate(runs, start=1):
        which = f", run {letter_of(number)}" if len(runs) > 1 else ""
        yield {
            "title": f"Where the time of steps went{which}",
            "note": "Of each bin the step that took longest."
            if run["bin"] > 1
            else "The parts of each step on one another.",
            "unit": "seconds",
            "layers": True,
            "lines": _parts(number, run, "top"),
        }
        if run["bin"] > 1:
            yield {
                "title": f"Where a usual step's time went{which}",
                "note": "Medians of each bin, part by part.",
                "unit": "seconds",
                "layers": True,
                "lines": _parts(number, run, "mid"),
            }
        if run["speeds"]:
            yield {
                "title": f"Speeds{which}",
                "note": "Rows per second that machines showed; a line has a gap where its machine "
                "was away.",
                "unit": "rate",
                "run": number,
            }
    yield from _progress(runs)
    yield {
        "title": "Bytes",
        "note": "What the master sends and receives in a step.",
        "unit": "bytes",
        "lines": _lines(runs, "bytes", "bytes per step"),
    }
    yield {
        "title": "Digits",
        "note": "Largest condition number of the decoding, and how much larger the terms of the "
        "product are than the result. The possible relative error is the product of both and the "
        "machine epsilon of the shards; logarithmic.",
        "unit": "number",
        "log": True,
        "lines": [
            *_lines(runs, "condition", "condition"),
            *_lines(runs, "cancellation", "cancellation", _HINDSIGHT, dash=[7, 3]),
        ],
    }


def _line(runs: Sequence[Run], run: Run, label: str, paint: str, **more: Any) -> Line:
    """Return a line; with several runs it has the colour and the letter of its run."""
    number = next(n for n, each in enumerate(runs, start=1) if each is run)
    if len(runs) > 1:
        label = f"{letter_of(number)} {label}".rstrip()
        paint = f"var(--series-{(number - 1) % _COLOURS})"
    return {"run": number, "label": label, "paint": paint, **more}


def _lines(
    runs: Sequence[Run], name: str, label: str, paint: str = _MEASURED, **more: Any
) -> list[Line]:
    """Return a line of each run that has this series, with its range unless it is dashed."""
    found = []
    for run in runs:
        series = run["series"].get(name, {})
        values: dict[str, Any] = {"y": series.get("value", series.get("mid"))}
        if "min" in series and "dash" not in more:
            values |= {"low": series["min"], "high": series["max"]}
        if values["y"]:
            found.append(_line(runs, run, label, paint, **values, **more))
    return found


def _parts(number: int, run: Run, key: str) -> list[Line]:
    lines = []
    for name, label in PARTS.items():
        part = run["parts"].get(name, {})
        values = part.get("value", part.get(key, ()))
        if any(values):
            lines.append(
                {"run": number, "label": label, "paint": f"var(--part-{name})", "y": values}
            )
    return lines


def _progress(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield a chart for each number that solvers told."""
    found = [(run, its) for run in runs for its in run["progress"]]
    for name in dict.fromkeys(its["name"] for _, its in found):
        mine = [(run, its) for run, its in found if its["name"] == name]
        log = any(its["log"] for _, its in mine)
        yield {
            "title": f"Solver: {name}",
            "note": "Logarithmic." if log else "",
            "unit": "number",
            "log": log,
            "lines": [
                _line(runs, run, name, _MEASURED, x=its["step"], y=its["value"], span=True)
                for run, its in mine
            ],
        }
