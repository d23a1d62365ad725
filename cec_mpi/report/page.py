"""A report as one HTML page that needs no other file and no network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import msgspec

from cec_mpi.report.charts import charts_of
from cec_mpi.report.summary import summary_of
from cec_mpi.text import printable

_STYLES = ("uPlot.min.css", "report.css")
# In this order, since each uses what is before it.
_SCRIPTS = ("base.js", "steps.js", "chart.js", "map.js", "assignment.js", "events.js", "page.js")
# Of a run: what is read as HTML, and what charts have taken.
_READ = {"facts", "figures", "words", "sum", "cyclic", "longest", "warnings", "by_machine"}
_CHARTED = {"series", "parts", "progress", "time"}
_LARGE = 500_000  # characters
# What would end the script that the data are in, or a line of it.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def page(data: dict[str, Any]) -> str:
    """Return the page of a report.

    Parameters
    ----------
    data : dict
        What it shows: ``title``, ``runs``, ``kinds`` of events, ``states`` of machines. All
        text in it is shown as text, and control characters as their escapes.

    Returns
    -------
    str
        HTML. Its Content-Security-Policy forbids what would ask a network.
    """
    data = _escaped(data)
    kind, packed = _packed(data)
    styles = "\n".join(_asset(name) for name in _STYLES)
    scripts = _scripts()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src '{_hash(styles)}'; script-src '{_hash(scripts)}'"
    )
    return Template(_asset("report.html")).substitute(
        policy=policy,
        title=html.escape(data["title"]),
        made=f"Made {data['made'][:16].replace('T', ' ')} UTC",
        styles=styles,
        summary=summary_of(data),
        data=packed,
        kind=kind,
        scripts=scripts,
    )


def _packed(data: dict[str, Any]) -> tuple[str, str]:
    """Return the type of the data in the page, and the data, compressed if they are large."""
    drawn = data | {
        "charts": charts_of(data["runs"]),
        "runs": [_drawn(run) for run in data["runs"]],
    }
    text = msgspec.json.encode(drawn, enc_hook=float).decode()  # also those of NumPy
    if len(text) <= _LARGE:
        return "application/json", text.translate(_ESCAPES)
    packed = gzip.compress(text.encode(), compresslevel=6, mtime=0)
    return "application/gzip", base64.b64encode(packed).decode()


def _drawn(run: dict[str, Any]) -> dict[str, Any]:
    """Return what scripts draw of a run."""
    table = run["by_machine"]
    first = table["rows"][0][0] if table and table["rows"] else 1
    kept = {key: value for key, value in run.items() if key not in _READ | _CHARTED}
    return kept | {"costliest": first}


def _escaped(value: Any) -> Any:
    """Return data with escapes for what would change how the text around it is shown."""
    if isinstance(value, str):
        return printable(value, kept="\n")
    if isinstance(value, dict):
        return {_escaped(key): _escaped(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(each) for each in value]
    return value


@cache
def _scripts() -> str:
    licence = f"/*! uPlot is shipped under this licence:\n{_asset('uPlot.LICENSE')}*/"
    own = "\n".join(_asset(name) for name in _SCRIPTS)
    chart_library = _asset("uPlot.iife.min.js")
    return f'{licence}\n{chart_library}\n(async () => {{\n"use strict";\n{own}}})();\n'


@cache
def _asset(name: str) -> str:
    return (files("cec_mpi.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
