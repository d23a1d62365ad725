"""The top of a page as plain HTML: figures, where the time went, and what each machine cost.

Texts come from files that others may have written, and are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from cec_mpi.text import counted, duration

Run = Mapping[str, Any]

PARTS = {
    "compute": "computation",
    "collect": "collecting answers",
    "stall": "stalls",
    "decode": "decoding",
    "load": "reading shards",
    "share": "sharing w",
    "announce": "announcing the assignment",
    "waiting": "waiting for machines",
}
"""Parts of a step, in the order in which they are drawn on one another."""

_SUM_COLOURS = {"talk": "collect", "outside": "announce"}
_ENDLESS = {"tr", "th", "td"}  # HTML ends these by itself, and a page has thousands of them
_HAPPENED = 4  # events of a step that are named


class Html(str):
    """Markup: `tag` escapes any other text."""


def tag(name: str, *parts: str, **attributes: object) -> Html:
    """Return an element.

    Examples
    --------
    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    >>> tag("ul", tag("li", "&"))
    '<ul><li>&amp;</li></ul>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(part if isinstance(part, Html) else html.escape(part) for part in parts)
    return Html(f"<{name}{written}>{inner}" + ("" if name in _ENDLESS else f"</{name}>"))


def summary_of(data: Mapping[str, Any]) -> str:
    """Return the top of a page.

    Parameters
    ----------
    data : mapping
        What `data_of` gives.
    """
    runs = data["runs"]
    made = [_run(run, number, data) for number, run in enumerate(runs, start=1)]
    if len(runs) > 1:
        made.append(_compared(runs))
    return "\n".join(made)


def letter_of(number: int) -> str:
    """Return the letter of run 1, 2, .. among several."""
    return chr(ord("A") + number - 1) if number <= 26 else str(number)


def link(text: str, runs: int, number: int, **to: int) -> Html:
    """Return a link that shows a step or a machine of a run."""
    words = {"run": number, **to} if runs > 1 else to
    return tag("a", text, href="#" + "&".join(f"{key}={value}" for key, value in words.items()))


def _run(run: Run, number: int, data: Mapping[str, Any]) -> Html:
    runs = len(data["runs"])
    name = f"{letter_of(number)}: {run['name']}" if runs > 1 else run["name"]
    state = tag("span", run["state"], class_=f"state {run['state'].replace(' ', '-')}")
    words = tag("div", *(tag("p", text) for text in run["words"]), class_="words")
    made = [tag("div", tag("h2", name), state, class_="run-head"), words]
    if run["figures"]:
        made.append(tag("dl", *map(_figure, run["figures"]), class_="figures"))
    if run["warnings"]:
        said = tag("ul", *(tag("li", text) for text in run["warnings"]))
        heading = tag("h3", counted(len(run["warnings"]), "warning"))
        made.append(tag("div", heading, said, class_="warnings", role="note"))
    if run["by_machine"]:
        made.append(_machines(run, number, runs))
    left = [_sum(run["sum"])] if run["sum"] else []
    if run["cyclic"]:
        left.append(_cyclic(run["cyclic"]))
    right = [_longest(run, number, data)] if run["longest"] else []
    facts = (tag("div", tag("dt", f["label"]), tag("dd", f["text"])) for f in run["facts"])
    right.append(tag("dl", *facts, class_="facts"))
    made.append(tag("div", tag("div", *left), tag("div", *right), class_="run-body"))
    return tag("section", *made, class_="run")


def _figure(figure: Mapping[str, str]) -> Html:
    value = tag("dd", figure["value"], class_="value")
    return tag("div", tag("dt", figure["label"]), value, tag("dd", figure["note"], class_="note"))


def _table(
    caption: str,
    names: Sequence[str],
    rows: Iterable[Html],
    kind: str = "",
    classes: Sequence[str | None] = (),
) -> Html:
    """Return a table in a box that scrolls if it has no room."""
    head = tag(
        "thead",
        tag(
            "tr",
            *(
                tag("th", name, scope="col", class_=each)
                for name, each in zip_longest(names, classes)
            ),
        ),
    )
    made = tag("table", tag("caption", caption), head, tag("tbody", *rows), class_=kind or None)
    box = {"class_": "scroll", "tabindex": 0, "role": "region", "aria_label": caption}
    return tag("div", made, **box)


def _sum(its: Mapping[str, Any]) -> Html:
    """Return a bar and a table of the parts of a run's time, which add up."""
    pieces, rows, begin = [], [], 0.0
    for part in its["parts"]:
        kind = f"part-{_SUM_COLOURS.get(part['part'], part['part'])}"
        place = {"x": f"{100 * begin:.2f}%", "width": f"{100 * part['share']:.2f}%"}
        pieces.append(tag("rect", class_=kind, height="100%", **place))
        begin += part["share"]
        swatch = tag("span", class_=f"swatch {kind}")
        name = tag("th", swatch, part["label"], tag("small", part["note"]), scope="row")
        cells = tag("td", part["text"]), tag("td", f"{100 * part['share']:.1f} %")
        rows.append(tag("tr", name, *cells))
    bar = tag("svg", *pieces, class_="sum-bar", aria_hidden="true")
    table = _table("Where the time went", ("Part", "Took", "Share"), rows)
    return tag("div", bar, table, class_="sum")


def _cyclic(found: Mapping[str, Any]) -> Html:
    """Return a table of what the same steps would have taken with the cyclic assignment."""
    note = (
        "The coded scheme without speeds: each available machine computes as many rows as any "
        f"other. From {counted(found['steps'], 'step')}."
    )
    times = tag("td", duration(found["theirs"])), tag("td", duration(found["mine"]))
    row = tag("tr", tag("th", "Cyclic", scope="row"), *times, tag("td", found["text"]))
    rows = [row, tag("tr", tag("td", note, colspan=4), class_="note")]
    names = "Assignment", "Would have taken", "This run took", "That is"
    return _table("What the cyclic assignment would have taken", names, rows, "otherwise")


def _longest(run: Run, number: int, data: Mapping[str, Any]) -> Html:
    """Return a table of the longest steps, what took most of each, and what happened in it."""
    rows = []
    for each in run["longest"]:
        step, parts = each["step"], each["parts"]
        most = max(parts, key=parts.__getitem__)
        happened = dict.fromkeys(
            f"machine {machine} {data['kinds'][kind]['words']}"
            for at, kind, machine, _ in run["events"]
            if at == step
        )
        cells = (
            duration(each["seconds"]),
            f"{PARTS.get(most, most)}: {duration(parts[most])}",
            "; ".join(list(happened)[:_HAPPENED]) or "\u2013",
        )
        name = tag("th", link(f"{step:,}", len(data["runs"]), number, step=step), scope="row")
        rows.append(tag("tr", name, *(tag("td", text) for text in cells)))
    caption = "The longest step" if len(rows) == 1 else f"The {len(rows)} longest steps"
    return _table(caption, ("Step", "Took", "Most of it", "What happened"), rows, "longest")


def _machines(run: Run, number: int, runs: int) -> Html:
    """Return the table of what each machine did and cost."""
    its = run["by_machine"]
    units = [column["unit"] for column in its["columns"]]
    rows = []
    for machine, *values in its["rows"]:
        cells = (
            tag("td", _written(value, unit), class_="text" if unit == "text" else None)
            for value, unit in zip(values, units, strict=True)
        )
        name = tag("th", link(f"{machine}", runs, number, machine=machine), scope="row")
        host = tag("td", run["names"][machine - 1] or "\u2013", class_="text")
        rows.append(tag("tr", name, host, *cells))
    head = ["Machine", "Host", *(column["label"] for column in its["columns"])]
    text = ["text", "text", *("text" if unit == "text" else None for unit in units)]
    return _table(its["caption"], head, rows, "by-machine", text)


def _written(value: Any, unit: str) -> str:
    """Return the text of a value of a column."""
    if unit == "seconds":
        return duration(value)
    if unit == "percent":  # rounded down, since a part is not the whole
        return f"{int(1000 * value) / 10:g} %" if value == 0 or value >= 1e-3 else "< 0.1 %"
    return f"{value:,.0f}" if unit == "whole" else str(value)


def _compared(runs: Sequence[Run]) -> Html:
    """Return a table of runs, with the ratios of their times to those of the first."""
    times = [(run["seconds"], _median(run)) for run in runs]
    rows = []
    for number, (run, its) in enumerate(zip(runs, times, strict=True), start=1):
        cells = [f"{run['steps']:,}"]
        for time, first in zip(its, times[0], strict=True):
            cells.append("\u2013" if time is None else duration(time))
            cells.append(f"{time / first:.3g} \u00d7" if time is not None and first else "\u2013")
        cells.append(f"{len(run['events']):,}")
        name = tag("th", f"{letter_of(number)}: {run['name']}", scope="row")
        rows.append(tag("tr", name, *(tag("td", text) for text in cells)))
    names = ["Run", "Steps", "Time", "Over A", "Median makespan", "Over A", "Events"]
    made = tag("h2", "The runs compared", id="compared"), _table("All runs", names, rows)
    return tag("section", *made, class_="panel compared", aria_labelledby="compared")


def _median(run: Run) -> float | None:
    series = run["series"].get("measured") or {}
    values = sorted(y for y in series.get("value", series.get("mid", ())) if y is not None)
    return values[len(values) // 2] if values else None
