"""A page that is one file: data, style and program in one HTML document."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import orjson

_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_PLAIN = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><pre id="words"></pre>
<script type="application/json" id="data">{data}</script>
<script>
const data = JSON.parse(document.getElementById("data").textContent);
document.getElementById("words").textContent = data.runs.map(
  (run) => [run.name, ...run.words, ...run.warnings].join("\\n")).join("\\n\\n");
</script></body></html>
"""


def page_of(data: dict[str, Any]) -> bytes:
    """The HTML of a page with this data; what is text in it stays text."""
    title = html.escape(data["title"])
    holes = {"title": title, "data": script_json(data)}
    page = re.sub(r"\{(title|data)\}", lambda hole: holes[hole[1]], _PLAIN)
    return page.encode("utf-8", "backslashreplace")


def script_json(data: dict[str, Any]) -> str:
    r"""JSON that may stand in a script element: nothing in it can end the element.

    Examples
    --------
    >>> print(script_json({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    try:
        text = orjson.dumps(data).decode()
    except TypeError:  # a name of a file that is no text
        text = json.dumps(data, allow_nan=False)
    for plain, escaped in _ESCAPED.items():
        text = text.replace(plain, escaped)
    return text
