"""A scene as PNG or PDF, which matplotlib makes (the extra `plot`)."""

from __future__ import annotations

import io
from itertools import groupby
from typing import Any

from cec_mpi.drawing.scene import COLOURS, HATCHED, OUTLINE, Scene
from cec_mpi.errors import InputError
from cec_mpi.text import printable

_PIXELS_PER_INCH, _POINTS_PER_INCH = 96.0, 72.0
_DOTS_PER_INCH = 192
_FONT = 0.92  # of the size in a browser, since letters of this font are wider
_UNDATED: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": "cec_mpi"},
}


def printed(scene: Scene, kind: str) -> bytes:
    """A PNG or PDF file on white paper; the same scene gives the same bytes.

    Parameters
    ----------
    scene : Scene
    kind : {"png", "pdf"}

    Raises
    ------
    InputError
        There is no matplotlib.
    """
    try:
        from matplotlib.collections import PatchCollection
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ImportError:
        raise InputError(
            f"a picture as .{kind} needs matplotlib: pip install 'cec_mpi[plot]', or expected .svg"
        ) from None
    size = (scene.width / _PIXELS_PER_INCH, scene.height / _PIXELS_PER_INCH)
    figure = Figure(figsize=size, facecolor=COLOURS["paper"][0])
    page = figure.add_axes((0, 0, 1, 1))
    page.set_xlim(0, scene.width)
    page.set_ylim(scene.height, 0)
    page.set_axis_off()
    points = _POINTS_PER_INCH / _PIXELS_PER_INCH
    runs = groupby(scene.boxes, lambda box: (box.role, box.outlined))  # later ones on top
    for height, ((role, outlined), boxes) in enumerate(runs):
        same = [Rectangle((box.x, box.y), box.width, box.height) for box in boxes]
        page.add_collection(
            PatchCollection(
                same,
                facecolor=COLOURS[role][0],
                edgecolor=OUTLINE[0] if outlined else COLOURS["faint"][0],
                linewidth=points if outlined else 0,
                hatch="////" if role == HATCHED else None,
                zorder=1 + height,
            )
        )
    for words in scene.words:
        page.text(
            words.x,
            words.y,
            printable(words.text),
            fontsize=words.size * points * _FONT,
            fontweight="bold" if words.bold else "normal",
            color=COLOURS[words.role][0],
            horizontalalignment={"start": "left", "middle": "center", "end": "right"}[words.anchor],
            verticalalignment="baseline",
            parse_math=False,
            zorder=1e6,
        )
    file = io.BytesIO()
    figure.savefig(
        file, format=kind, dpi=_DOTS_PER_INCH, metadata={"Title": scene.title, **_UNDATED[kind]}
    )
    return file.getvalue()
