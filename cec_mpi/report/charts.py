"""The charts of a page, which a script draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cec_mpi.report.summary import PARTS, RunData, run_letter

Line = dict[str, Any]

_MEASURED, _HINDSIGHT, _MUTED = "var(--measured)", "var(--hindsight)", "var(--muted)"
_RUN_COLOUR_COUNT = 8  # in one chart


def build_charts(runs: Sequence[RunData]) -> list[dict[str, Any]]:
    """Return the charts of a page.

    Parameters
    ----------
    runs : sequence of mapping
        From `page_data`.

    Returns
    -------
    list of dict
        ``title``, ``unit`` (seconds, bytes, rate or number), ``lines``, and optionally ``note``,
        ``log`` (logarithmic axis), ``layers`` (stacked lines) and ``height`` (pixels).
        A line has ``run`` (its number), ``label``, ``colour`` (a CSS colour) and ``y``, and may
        have the options of `addChart` in ``chart.js``. A chart of speeds has ``run`` instead of
        lines, because its lines depend on the selected machine.
    """
    return [chart for chart in _charts(runs) if chart.get("lines") or chart.get("run")]


def _charts(runs: Sequence[RunData]) -> Iterator[dict[str, Any]]:
    has_bins = any(run["bin_width"] > 1 for run in runs)
    bin_note = " Lines show the median of each bin, and the shaded bands its range."
    yield {
        "title": "Makespan",
        "note": f"Time of the slowest machine.{bin_note * has_bins}",
        "unit": "seconds",
        "height": 230,
        "lines": [
            *_lines(runs, "measured", "measured", width=1.75),
            *_lines(runs, "predicted", "predicted", _MUTED, dash=[2, 3], scales_axis=False),
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
        suffix = f", run {run_letter(number)}" if len(runs) > 1 else ""
        yield {
            "title": f"Step time by part{suffix}",
            "note": "Longest step of each bin."
            if run["bin_width"] > 1
            else "Parts of each step, stacked.",
            "unit": "seconds",
            "layers": True,
            "lines": _part_lines(number, run, "longest"),
        }
        if run["bin_width"] > 1:
            yield {
                "title": f"Typical step time by part{suffix}",
                "note": "Median of each part in each bin.",
                "unit": "seconds",
                "layers": True,
                "lines": _part_lines(number, run, "median"),
            }
        if run["speeds"]:
            yield {
                "title": f"Speeds{suffix}",
                "note": "Measured rows per second; a gap shows that a machine computed no rows.",
                "unit": "rate",
                "run": number,
            }
    yield from _progress_charts(runs)
    yield {
        "title": "Bytes",
        "note": "Bytes that the master sends and receives in a step.",
        "unit": "bytes",
        "lines": _lines(runs, "bytes", "bytes per step"),
    }
    yield {
        "title": "Error amplification",
        "note": "Largest condition number (1-norm) of a decoder, and cancellation: the magnitude "
        "of the terms of a product relative to the result. The relative error can be as large as "
        "condition number times cancellation times the error of an answer (2e-15 for float64). "
        "Logarithmic.",
        "unit": "number",
        "log": True,
        "lines": [
            *_lines(runs, "condition", "condition"),
            *_lines(runs, "cancellation", "cancellation", _HINDSIGHT, dash=[7, 3]),
        ],
    }


def _line(runs: Sequence[RunData], run: RunData, label: str, colour: str, **options: Any) -> Line:
    """Return a line; if there are several runs, it has the colour and the letter of its run."""
    number = next(n for n, other in enumerate(runs, start=1) if other is run)
    if len(runs) > 1:
        label = f"{run_letter(number)} {label}".rstrip()
        colour = f"var(--series-{(number - 1) % _RUN_COLOUR_COUNT})"
    return {"run": number, "label": label, "colour": colour, **options}


def _lines(
    runs: Sequence[RunData], name: str, label: str, colour: str = _MEASURED, **options: Any
) -> list[Line]:
    """Return a line for each run with this series; solid lines show the ranges of bins."""
    lines = []
    for run in runs:
        series = run["series"].get(name, {})
        values: dict[str, Any] = {"y": series.get("value", series.get("median"))}
        if "min" in series and "dash" not in options:
            values |= {"low": series["min"], "high": series["max"]}
        if values["y"]:
            lines.append(_line(runs, run, label, colour, **values, **options))
    return lines


def _part_lines(number: int, run: RunData, key: str) -> list[Line]:
    lines = []
    for name, label in PARTS.items():
        part = run["parts"].get(name, {})
        values = part.get("value", part.get(key, ()))
        if any(values):
            lines.append(
                {"run": number, "label": label, "colour": f"var(--part-{name})", "y": values}
            )
    return lines


def _progress_charts(runs: Sequence[RunData]) -> Iterator[dict[str, Any]]:
    """Yield a chart for each quantity that solvers recorded."""
    all_curves = [(run, curve) for run in runs for curve in run["progress"]]
    for name in dict.fromkeys(curve["name"] for _, curve in all_curves):
        curves = [(run, curve) for run, curve in all_curves if curve["name"] == name]
        log = any(curve["log"] for _, curve in curves)
        yield {
            "title": f"Solver: {name}",
            "note": "Logarithmic." if log else "",
            "unit": "number",
            "log": log,
            "lines": [
                _line(
                    runs,
                    run,
                    name,
                    _MEASURED,
                    x=curve["step"],
                    y=curve["value"],
                    connects_gaps=True,
                )
                for run, curve in curves
            ],
        }
