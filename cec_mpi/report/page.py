"""A report as one self-contained HTML page."""

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

from cec_mpi.report.charts import build_charts
from cec_mpi.report.summary import summary_html
from cec_mpi.text import printable

_STYLES = ("uPlot.min.css", "report.css")
# The order matters: later scripts use earlier ones.
_SCRIPTS = ("base.js", "view.js", "chart.js", "map.js", "assignment.js", "events.js", "page.js")
# Keys of the data of a run that only the HTML uses, and those that only charts use.
_HTML_KEYS = {
    "facts",
    "figures",
    "status",
    "breakdown",
    "cyclic",
    "longest",
    "warnings",
    "by_machine",
}
_CHART_KEYS = {"series", "parts", "progress", "time"}
_MIN_COMPRESSED = 500_000  # characters
# Characters that could close the script element that holds the data, or end a line in it.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def render_page(data: dict[str, Any]) -> str:
    """Return a report as an HTML page.

    Parameters
    ----------
    data : dict
        From `page_data`: ``title``, ``runs``, ``kinds`` of events, ``states`` of machines. Text
        is escaped, including control characters.

    Returns
    -------
    str
        HTML. Its Content-Security-Policy forbids network access.
    """
    data = _escape_controls(data)
    media_type, encoded = _encode_data(data)
    styles = "\n".join(_asset(name) for name in _STYLES)
    scripts = _scripts()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src '{_hash(styles)}'; script-src '{_hash(scripts)}'"
    )
    return Template(_asset("report.html")).substitute(
        policy=policy,
        title=html.escape(data["title"]),
        generated=f"Generated {data['generated'][:16].replace('T', ' ')} UTC",
        styles=styles,
        summary=summary_html(data),
        data=encoded,
        media_type=media_type,
        scripts=scripts,
    )


def _encode_data(data: dict[str, Any]) -> tuple[str, str]:
    """Return the media type of the data, and the data, which are compressed if large."""
    script_data = data | {
        "charts": build_charts(data["runs"]),
        "runs": [_script_data(run) for run in data["runs"]],
    }
    # `float` converts NumPy scalars.
    text = msgspec.json.encode(script_data, enc_hook=float).decode()
    if len(text) <= _MIN_COMPRESSED:
        return "application/json", text.translate(_ESCAPES)
    compressed = gzip.compress(text.encode(), compresslevel=6, mtime=0)
    return "application/gzip", base64.b64encode(compressed).decode()


def _script_data(run: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a run that scripts need."""
    table = run["by_machine"]
    first_machine = table["rows"][0][0] if table and table["rows"] else 1
    kept = {key: value for key, value in run.items() if key not in _HTML_KEYS | _CHART_KEYS}
    return kept | {"first_in_table": first_machine}


def _escape_controls(value: Any) -> Any:
    """Escape the control characters in all strings."""
    if isinstance(value, str):
        return printable(value, keep="\n")
    if isinstance(value, dict):
        return {_escape_controls(key): _escape_controls(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escape_controls(item) for item in value]
    return value


@cache
def _scripts() -> str:
    licence = f"/*! uPlot is shipped under this licence:\n{_asset('uPlot.LICENSE')}*/"
    scripts = "\n".join(_asset(name) for name in _SCRIPTS)
    chart_library = _asset("uPlot.iife.min.js")
    return f'{licence}\n{chart_library}\n(async () => {{\n"use strict";\n{scripts}}})();\n'


@cache
def _asset(name: str) -> str:
    return (files("cec_mpi.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
