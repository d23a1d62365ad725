"""What is read first, as plain HTML: what ran, in words, where the time went, who cost what.

Texts come from files that others may have written: whatever they hold, they stay text.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cec_mpi.report.comparisons import duration
from cec_mpi.text import counted

Run = Mapping[str, Any]

PARTS = {
    "compute": "computation",
    "collect": "collecting answers",
    "stall": "stalls (lost, given up, late or wrong)",
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
    """An element.

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
    """The top of a page.

    Parameters
    ----------
    data : mapping
        What `data_of` gives.
    """
    runs = data["runs"]
    made = [_run(run, number, data) for number, run in enumerate(runs, start=1)]
    if len(runs) > 1:
        made.append(_compared(runs, data.get("words", ())))
    return "\n".join(made)


def letter_of(number: int) -> str:
    """What run 1, 2, .. is called beside others."""
    return chr(ord("A") + number - 1) if number <= 26 else str(number)


def link(text: str, runs: int, number: int, **to: int) -> Html:
    """A link to a step or a machine of a run, which the page then shows."""
    words = {"run": number, **to} if runs > 1 else to
    return tag("a", text, href="#" + "&".join(f"{key}={value}" for key, value in words.items()))


def _run(run: Run, number: int, data: Mapping[str, Any]) -> Html:
    runs = len(data["runs"])
    name = f"{letter_of(number)}: {run['name']}" if runs > 1 else run["name"]
    state = tag("span", run["state"], class_=f"state {run['state'].replace(' ', '-')}")
    left = [tag("div", *(tag("p", text) for text in run["words"]), class_="words")]
    if run["warnings"]:
        said = tag("ul", *(tag("li", text) for text in run["warnings"]))
        heading = tag("h3", counted(len(run["warnings"]), "warning"))
        left.append(tag("div", heading, said, class_="warnings", role="note"))
    if run["by_machine"] and run["by_machine"]["rows"]:
        left.append(_machines(run, number, runs))
    right = []
    if run["sum"]:
        right.append(_sum(run["sum"]))
    if run["comparisons"]:
        right.append(_otherwise(run["comparisons"]))
    if run["longest"]:
        right.append(_longest(run, number, data))
    facts = (tag("div", tag("dt", f["label"]), tag("dd", f["text"])) for f in run["facts"])
    right.append(tag("dl", *facts, class_="facts"))
    body = tag("div", tag("div", *left), tag("div", *right), class_="run-body")
    return tag("section", tag("div", tag("h2", name), state, class_="run-head"), body, class_="run")


def _table(
    caption: str, names: Sequence[str], rows: Iterable[Html], kind: str = "", **more: str
) -> Html:
    """A table in a box that scrolls where it has no room."""
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))
    made = tag("table", tag("caption", caption), head, tag("tbody", *rows), class_=kind or None)
    box = {"class_": "scroll", "tabindex": 0, "role": "region", "aria_label": caption}
    return tag("div", made, **box, **more)


def _sum(its: Mapping[str, Any]) -> Html:
    """Where the time of a run went: a bar, and its parts, which add up."""
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
    whole = tag("th", "All of the run, until its last step", scope="row")
    rows.append(tag("tr", whole, tag("td", its["whole"]), tag("td", "100 %"), class_="total"))
    bar = tag("svg", *pieces, class_="sum-bar", aria_hidden="true")
    caption = f"Where the {its['whole']} went"
    return tag("div", bar, _table(caption, ("Part", "Took", "Share"), rows), class_="sum")


def _otherwise(comparisons: Iterable[Mapping[str, Any]]) -> Html:
    """What the same steps would have taken with other shares."""
    rows = []
    for each in comparisons:
        note = [each["note"]]
        if each["theirs_of"]:
            note.append(f"It would have taken {each['theirs_of']}.")
        if each["mine_of"]:
            note.append(f"This run took {each['mine_of']}.")
        note.append(f"In {counted(each['steps'], 'step')} that tell.")
        times = tag("td", duration(each["theirs"])), tag("td", duration(each["mine"]))
        rows.append(
            tag("tr", tag("th", each["label"], scope="row"), *times, tag("td", each["text"]))
        )
        rows.append(tag("tr", tag("td", " ".join(note), colspan=4), class_="note"))
    caption = "What computing would have taken otherwise, in the same steps"
    names = "Shared out otherwise", "Would have taken", "This run took", "That is"
    return _table(caption, names, rows, "otherwise")


def _longest(run: Run, number: int, data: Mapping[str, Any]) -> Html:
    """The longest steps, what of, and what happened in them."""
    rows = []
    for each in run["longest"]:
        step, parts = each["step"], each["parts"]
        most = max(parts, key=parts.__getitem__)
        happened = dict.fromkeys(
            f"machine {machine} {_words(data, kind)}" if machine else _words(data, kind)
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


def _words(data: Mapping[str, Any], kind: int) -> str:
    return str(data["kinds"][kind]["words"]) or "other"


def _machines(run: Run, number: int, runs: int) -> Html:
    """What each machine did and cost."""
    its = run["by_machine"]
    rows = []
    for machine, *values in its["rows"]:
        host = run["names"][machine - 1]
        name = f"{machine} · {host}" if host else f"{machine}"
        cells = (
            tag("td", _written(value, column["unit"]))
            for value, column in zip(values, its["columns"], strict=True)
        )
        rows.append(tag("tr", tag("th", link(name, runs, number, machine=machine)), *cells))
    names = ["Machine", *(column["label"] for column in its["columns"])]
    note = tag("p", its["note"], class_="note")
    return tag("div", _table(its["caption"], names, rows), note, class_="by-machine")


def _written(value: Any, unit: str) -> str:
    """A value of a column."""
    if value is None:
        return "\u2013"
    if unit == "seconds":
        return duration(value)
    if unit == "percent":  # rounded down: a part of all is no whole when something is missing
        return f"{int(1000 * value) / 10:g} %" if value == 0 or value >= 1e-3 else "< 0.1 %"
    return f"{value:,.0f}" if unit == "whole" else str(value)


def _compared(runs: Sequence[Run], words: Iterable[str]) -> Html:
    """Two or more runs beside each other, with the ratios of their times."""
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
    said = tag("div", *(tag("p", text) for text in words), class_="words")
    made = tag("h2", "The runs compared", id="compared"), said, _table("All runs", names, rows)
    return tag("section", *made, class_="panel compared", aria_labelledby="compared")


def _median(run: Run) -> float | None:
    series = run["series"].get("measured") or {}
    values = sorted(y for y in series.get("value", series.get("mid", ())) if y is not None)
    return values[len(values) // 2] if values else None
