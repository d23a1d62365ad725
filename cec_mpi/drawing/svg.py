"""A scene as SVG: one file without anything beside it, for light and dark surroundings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.sax.saxutils import escape

from cec_mpi.drawing.scene import COLOURS, HATCHED, OUTLINE, Box, Scene, Words
from cec_mpi.text import printable

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"


def svg(scene: Scene) -> str:
    r"""The text of an SVG file; the same scene gives the same text.

    It has a background of its own, so that it can be read on any page, and dark colours
    where the reader prefers them. Titles and words are text, whatever they hold.

    Examples
    --------
    >>> text = svg(Scene(20, 10, "<none>", "An empty picture.", [Box(1, 1, 5, 2, "stored")], []))
    >>> "<title id=\"cec-title\">&lt;none&gt;</title>" in text, text.count("<path")
    (True, 4)
    """
    size = f"{_number(scene.width)} {_number(scene.height)}"
    return "\n".join(
        [
            f'<svg class="cec" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" '
            f'width="{_number(scene.width)}" height="{_number(scene.height)}" role="img" '
            'aria-labelledby="cec-title cec-desc">',
            f'<title id="cec-title">{_text(scene.title)}</title>',
            f'<desc id="cec-desc">{_text(scene.description)}</desc>',
            "<style>",
            *_style(scene),
            "</style>",
            '<defs><pattern id="cec-hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)">'
            f'<path class="{_class(HATCHED)}" d="M0 0h6v6h-6z"/>'
            f'<path class="{_class("faint")}" d="M0 0h1.2v6h-1.2z"/></pattern></defs>',
            f'<path class="{_class("paper")}" d="{_outline(Box(0, 0, *_size(scene), "paper"))}"/>',
            *_paths(scene.boxes),
            *map(_words, scene.words),
            "</svg>",
            "",
        ]
    )


def _size(scene: Scene) -> tuple[float, float]:
    return scene.width, scene.height


def _style(scene: Scene) -> Iterator[str]:
    """Fonts and colours of what is in the scene."""
    used = {"paper", HATCHED, "faint", *(box.role for box in scene.boxes)}
    used.update(words.role for words in scene.words)
    yield f".cec text {{ font-family: {_FONT}; }}"
    for k, before, after in ((0, "", ""), (1, "@media (prefers-color-scheme: dark) {", "}")):
        if before:
            yield before
        for role, colours in COLOURS.items():
            if role in used and (k == 0 or colours[0] != colours[1]):
                yield f".{_class(role)} {{ fill: {colours[k]}; }}"
        yield f".cec-outlined {{ stroke: {OUTLINE[k]}; stroke-width: 1; }}"
        if after:
            yield after


def _class(role: str) -> str:
    return "cec-" + role.replace(" ", "-")


def _paths(boxes: Sequence[Box]) -> Iterator[str]:
    """Neighbours of one kind in one path, which is short where there are many."""
    for (role, outlined), same in groupby(boxes, lambda box: (box.role, box.outlined)):
        names = _class(role) + (" cec-outlined" if outlined else "")
        fill = ' style="fill: url(#cec-hatch)"' if role == HATCHED else ""
        yield f'<path class="{names}"{fill} d="{"".join(map(_outline, same))}"/>'


def _outline(box: Box) -> str:
    x, y, width, height = map(_number, (box.x, box.y, box.width, box.height))
    return f"M{x} {y}h{width}v{height}h-{width}z"


def _words(words: Words) -> str:
    more = "" if words.anchor == "start" else f' text-anchor="{words.anchor}"'
    more += ' font-weight="600"' if words.bold else ""
    return (
        f'<text class="{_class(words.role)}" x="{_number(words.x)}" y="{_number(words.y)}" '
        f'font-size="{_number(words.size)}"{more}>{_text(words.text)}</text>'
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _number(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
