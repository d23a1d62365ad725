"""The summary at the top of a page: key figures, time by part, and time lost to each machine.

All text is escaped, because records may come from an untrusted source.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from cec_mpi.text import format_count, format_duration

RunData = Mapping[str, Any]

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
"""Parts of a step, in the order in which they are stacked."""

_BREAKDOWN_COLOURS = {"communication": "collect", "outside": "announce"}
_UNCLOSED_TAGS = {"tr", "th", "td"}  # HTML closes these implicitly, which saves space
_MAX_EVENTS = 4  # per step, in the table of the longest steps


class Html(str):
    """Markup, which `tag` does not escape."""


def tag(name: str, *children: str, **attributes: object) -> Html:
    """Return an element.

    Examples
    --------
    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    >>> tag("ul", tag("li", "&"))
    '<ul><li>&amp;</li></ul>'
    """
    attributes_html = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(child if isinstance(child, Html) else html.escape(child) for child in children)
    return Html(
        f"<{name}{attributes_html}>{inner}" + ("" if name in _UNCLOSED_TAGS else f"</{name}>")
    )


def summary_html(data: Mapping[str, Any]) -> str:
    """Return the summary at the top of a page.

    Parameters
    ----------
    data : mapping
        The data from `page_data`.
    """
    runs = data["runs"]
    sections = [_run_section(run, number, data) for number, run in enumerate(runs, start=1)]
    if len(runs) > 1:
        sections.append(_comparison_section(runs))
    return "\n".join(sections)


def run_letter(number: int) -> str:
    """Return the letter of run `number` (from 1); from run 27 on, the number."""
    return chr(ord("A") + number - 1) if number <= 26 else str(number)


def link(text: str, run_count: int, number: int, **target: int) -> Html:
    """Return a link that selects a step or a machine of a run."""
    fields = {"run": number, **target} if run_count > 1 else target
    return tag("a", text, href="#" + "&".join(f"{key}={value}" for key, value in fields.items()))


def _run_section(run: RunData, number: int, data: Mapping[str, Any]) -> Html:
    run_count = len(data["runs"])
    name = f"{run_letter(number)}: {run['name']}" if run_count > 1 else run["name"]
    state = tag("span", run["state"], class_=f"state {run['state'].replace(' ', '-')}")
    status = tag("div", *(tag("p", text) for text in run["status"]), class_="status")
    children = [tag("div", tag("h2", name), state, class_="run-head"), status]
    if run["figures"]:
        children.append(tag("dl", *map(_key_figure, run["figures"]), class_="figures"))
    if run["warnings"]:
        warnings = tag("ul", *(tag("li", text) for text in run["warnings"]))
        heading = tag("h3", format_count(len(run["warnings"]), "warning"))
        children.append(tag("div", heading, warnings, class_="warnings", role="note"))
    if run["by_machine"]:
        children.append(_machine_table(run, number, run_count))
    left_column = [_breakdown_figure(run["breakdown"])] if run["breakdown"] else []
    if run["cyclic"]:
        left_column.append(_cyclic_table(run["cyclic"]))
    right_column = [_longest_steps_table(run, number, data)] if run["longest"] else []
    facts = (tag("div", tag("dt", f["label"]), tag("dd", f["text"])) for f in run["facts"])
    right_column.append(tag("dl", *facts, class_="facts"))
    children.append(
        tag("div", tag("div", *left_column), tag("div", *right_column), class_="run-body")
    )
    return tag("section", *children, class_="run")


def _key_figure(figure: Mapping[str, str]) -> Html:
    value = tag("dd", figure["value"], class_="value")
    return tag("div", tag("dt", figure["label"]), value, tag("dd", figure["note"], class_="note"))


def _table(
    caption: str,
    names: Sequence[str],
    rows: Iterable[Html],
    class_name: str = "",
    column_classes: Sequence[str | None] = (),
) -> Html:
    """Return a table in a box that scrolls if it is too wide."""
    head = tag(
        "thead",
        tag(
            "tr",
            *(
                tag("th", name, scope="col", class_=column_class)
                for name, column_class in zip_longest(names, column_classes)
            ),
        ),
    )
    table = tag(
        "table", tag("caption", caption), head, tag("tbody", *rows), class_=class_name or None
    )
    box = {"class_": "scroll", "tabindex": 0, "role": "region", "aria_label": caption}
    return tag("div", table, **box)


def _breakdown_figure(breakdown: Mapping[str, Any]) -> Html:
    """Return a bar and a table of the parts of a run's time."""
    rectangles, rows, begin = [], [], 0.0
    for part in breakdown["parts"]:
        colour_class = f"part-{_BREAKDOWN_COLOURS.get(part['part'], part['part'])}"
        extent = {"x": f"{100 * begin:.2f}%", "width": f"{100 * part['share']:.2f}%"}
        rectangles.append(tag("rect", class_=colour_class, height="100%", **extent))
        begin += part["share"]
        swatch = tag("span", class_=f"swatch {colour_class}")
        name = tag("th", swatch, part["label"], tag("small", part["note"]), scope="row")
        cells = tag("td", part["text"]), tag("td", f"{100 * part['share']:.1f} %")
        rows.append(tag("tr", name, *cells))
    bar = tag("svg", *rectangles, class_="breakdown-bar", aria_hidden="true")
    table = _table("Time by part", ("Part", "Time", "Share"), rows)
    return tag("div", bar, table, class_="breakdown")


def _cyclic_table(comparison: Mapping[str, Any]) -> Html:
    """Return a table that compares the run with the cyclic assignment."""
    note = (
        "Coded computing that ignores speeds: available machines compute the same number of rows. "
        f"Based on {format_count(comparison['steps'], 'step')}."
    )
    times = (
        tag("td", format_duration(comparison["cyclic"])),
        tag("td", format_duration(comparison["measured"])),
    )
    row = tag("tr", tag("th", "Cyclic", scope="row"), *times, tag("td", comparison["text"]))
    rows = [row, tag("tr", tag("td", note, colspan=4), class_="note")]
    names = "Assignment", "Cyclic time", "Measured time", "Difference"
    return _table("Time with the cyclic assignment", names, rows, "cyclic")


def _longest_steps_table(run: RunData, number: int, data: Mapping[str, Any]) -> Html:
    """Return a table of the longest steps, with the largest part and the events of each."""
    rows = []
    for longest in run["longest"]:
        step, parts = longest["step"], longest["parts"]
        largest = max(parts, key=parts.__getitem__)
        events = dict.fromkeys(
            f"machine {machine} {data['kinds'][kind]['predicate']}"
            for event_step, kind, machine, _ in run["events"]
            if event_step == step
        )
        cells = (
            format_duration(longest["seconds"]),
            f"{PARTS.get(largest, largest)}: {format_duration(parts[largest])}",
            "; ".join(list(events)[:_MAX_EVENTS]) or "\u2013",
        )
        name = tag("th", link(f"{step:,}", len(data["runs"]), number, step=step), scope="row")
        rows.append(tag("tr", name, *(tag("td", text) for text in cells)))
    caption = "The longest step" if len(rows) == 1 else f"The {len(rows)} longest steps"
    return _table(caption, ("Step", "Time", "Largest part", "Events"), rows, "longest")


def _machine_table(run: RunData, number: int, run_count: int) -> Html:
    """Return the table of machines."""
    table = run["by_machine"]
    units = [column["unit"] for column in table["columns"]]
    rows = []
    head = ["Machine", *(column["label"] for column in table["columns"])]
    host_column = head.index("Left") + 1 if "Left" in head else 2
    head.insert(host_column, "Host")
    units.insert(host_column - 1, "text")
    for machine, *values in table["rows"]:
        values.insert(host_column - 1, run["hosts"][machine - 1] or "\u2013")
        cells = (
            tag(
                "td",
                _format_value(value, unit),
                class_="text" if unit == "text" else None,
                data_label=label,  # shown if a row has several lines
            )
            for value, unit, label in zip(values, units, head[1:], strict=True)
        )
        name = tag("th", link(f"{machine}", run_count, number, machine=machine), scope="row")
        rows.append(tag("tr", name, *cells))
    classes = ["text", *("text" if unit == "text" else None for unit in units)]
    return _table(table["caption"], head, rows, "by-machine", classes)


def _format_value(value: Any, unit: str) -> str:
    """Return a value of a column as text."""
    if unit == "seconds":
        return format_duration(value)
    if unit == "percent":  # rounded down, so that only 1 becomes 100 %
        return f"{int(1000 * value) / 10:g} %" if value == 0 or value >= 1e-3 else "< 0.1 %"
    return f"{value:,.0f}" if unit == "whole" else str(value)


def _comparison_section(runs: Sequence[RunData]) -> Html:
    """Return a table of runs, with their times relative to the first run."""
    times = [(run["seconds"], _median_makespan(run)) for run in runs]
    rows = []
    for number, (run, times_of_run) in enumerate(zip(runs, times, strict=True), start=1):
        cells = [f"{run['steps']:,}"]
        for time, first in zip(times_of_run, times[0], strict=True):
            cells.append("\u2013" if time is None else format_duration(time))
            cells.append(f"{time / first:.3g} \u00d7" if time is not None and first else "\u2013")
        cells.append(f"{len(run['events']):,}")
        name = tag("th", f"{run_letter(number)}: {run['name']}", scope="row")
        rows.append(tag("tr", name, *(tag("td", text) for text in cells)))
    names = ["Run", "Steps", "Time", "Relative to A", "Median makespan", "Relative to A", "Events"]
    children = tag("h2", "Comparison of runs", id="compared"), _table("All runs", names, rows)
    return tag("section", *children, class_="panel compared", aria_labelledby="compared")


def _median_makespan(run: RunData) -> float | None:
    series = run["series"].get("measured") or {}
    values = sorted(y for y in series.get("value", series.get("median", ())) if y is not None)
    return values[len(values) // 2] if values else None
