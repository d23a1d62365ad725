"""A report as one HTML page that needs nothing beside it: no file, no network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import orjson

_STYLES = ("uPlot.min.css", "report.css")
# In this order, since each uses what is before it.
_SCRIPTS = (
    "base.js",
    "theme.js",
    "view.js",
    "frame.js",
    "cells.js",
    "map.js",
    "chart.js",
    "figures.js",
    "speeds.js",
    "summary.js",
    "events.js",
    "assignment.js",
    "report.js",
)
_LARGE = 500_000  # characters
# What would end the script that the data are in, or a line of it.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def page(data: dict[str, Any]) -> str:
    """The page of a report.

    Parameters
    ----------
    data : dict
        What it shows: ``title``, ``runs``, ``kinds`` of events, ``states`` of machines. All
        text in it is shown as text, whatever it holds.

    Returns
    -------
    str
        HTML. Its Content-Security-Policy forbids what would ask a network.
    """
    kind, packed = _packed(data)
    styles = "\n".join(_asset(name) for name in _STYLES)
    scripts = _scripts()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src '{_hash(styles)}'; script-src '{_hash(scripts)}'"
    )
    return Template(_asset("report.html")).substitute(
        policy=policy,
        title=html.escape(_writable(data["title"])),
        styles=styles,
        words=_words(data["runs"]),
        data=packed,
        kind=kind,
        scripts=scripts,
    )


def _words(runs: list[dict[str, Any]]) -> str:
    """What is read where scripts do not run."""
    lines = []
    for run in runs:
        lines.append(f"<h2>{html.escape(run['name'])}: {html.escape(run['state'])}</h2>")
        said = [*run["words"], *run["warnings"]]
        if run.get("sum"):
            said.append(f"All of it took {run['sum']['whole']}:")
            said += [f"{each['label']}: {each['text']}" for each in run["sum"]["parts"]]
        for each in run.get("comparisons", ()):
            said.append(f"{each['label']}: this run took {each['text']} in {each['steps']} steps.")
        lines += [f"<p>{html.escape(text)}</p>" for text in said]
    return _writable("\n".join([*lines, "<p>The pictures need JavaScript.</p>"]))


def _packed(data: dict[str, Any]) -> tuple[str, str]:
    """The type of the data in the page, and the data: as text, or packed where they are large."""
    try:
        text = orjson.dumps(data).decode()
    except TypeError:  # a name of a file that is no text
        text = _writable(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    if len(text) <= _LARGE:
        return "application/json", text.translate(_ESCAPES)
    packed = gzip.compress(text.encode(), compresslevel=6, mtime=0)
    return "application/gzip", base64.b64encode(packed).decode()


def _writable(text: str) -> str:
    """Names of files need not be text: what is none becomes a question mark, as `ls` has it."""
    return text.encode("utf-8", "replace").decode()


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
