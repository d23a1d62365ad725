"""Choices of a store as points: their room, and their time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cec_mpi.drawing.pictures import BLOCKS, FAINT, INK, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 6.4, 4.2  # inches


class Point(NamedTuple):
    """A choice.

    Attributes
    ----------
    label : str
    group : str
        What those on a line have in common.
    room : float
        In units of the axis.
    time, low, high : float
        With its interval, in units of the axis.
    recommended : bool
    """

    label: str
    group: str
    room: float
    time: float
    low: float
    high: float
    recommended: bool


def draw_front(points: Sequence[Point], title: str, room: str, time: str) -> Figure:
    """Return a figure of choices.

    Parameters
    ----------
    points : sequence of Point
    title : str
    room, time : str
        Labels of the axes.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    groups = list(dict.fromkeys(point.group for point in points))
    for k, group in enumerate(groups):
        mine = [point for point in points if point.group == group]
        away = [
            [point.time - point.low for point in mine],
            [point.high - point.time for point in mine],
        ]
        axes.errorbar(
            [point.room for point in mine],
            [point.time for point in mine],
            yerr=away,
            fmt="o-",
            lw=0.8,
            color=BLOCKS[k % len(BLOCKS)],
            ecolor=FAINT,
            elinewidth=0.8,
            label=shortened(group),
        )
    for point in points:
        if point.recommended:
            axes.scatter(
                [point.room],
                [point.time],
                s=120,
                facecolors="none",
                edgecolors=INK,
                label="recommended",
                zorder=3,
            )
        below = point.group == groups[-1]  # apart from those of lines above it
        axes.annotate(
            shortened(point.label),
            (point.room, min(point.low, point.time) if below else max(point.high, point.time)),
            xytext=(0, -6 if below else 6),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize="x-small",
        )
    axes.set_title(shortened(title))
    axes.set_xlabel(room)
    axes.set_ylabel(time)
    axes.margins(x=0.06, y=0.12)
    axes.legend(fontsize="small")
    return figure
