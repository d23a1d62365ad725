"""Figures for papers, of what a report is given."""

import base64
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from cec_mpi.core.plan.planner import plan_step
from cec_mpi.drawing.shares import new_rows
from cec_mpi.errors import InputError
from cec_mpi.report.exports.figures import figures_of

SVG = "{http://www.w3.org/2000/svg}"
MARKED = [
    {"kind": "lost", "words": "was lost", "colour": "#cc3311", "dark": "#ee7755", "mark": "x"},
    {"kind": "join", "words": "joined", "colour": "#228833", "dark": "#55bb66", "mark": "^"},
    {"kind": "warning", "words": "warning", "colour": "#aa7700", "dark": "#ddaa33", "mark": "!"},
]
STATES = [
    {"state": "preempted", "words": "preempted", "colour": "#ffffff", "dark": "#000000"},
    {"state": "idle", "words": "available, no rows", "colour": "#dddddd", "dark": "#333333"},
]


def run_of(machines=6, steps=60, bin=1, name="results", recovery=3):
    """A run as a report is given it: machine 4 goes for a while, and the last one is lost."""
    rng = np.random.default_rng(1)
    speeds = rng.uniform(2, 4, machines)
    bins = -(-steps // bin)
    cells = rng.integers(16, 256, (machines, bins))
    cells[min(3, machines - 1), bins // 3 : bins // 2] = 0
    measured = 0.1 + 0.02 * rng.random(bins)

    def series(values):
        if bin == 1:
            return {"value": [None, *map(float, values[1:])]}
        return {"min": list(values * 0.9), "mid": list(values), "max": list(values * 1.3)}

    assignments, last = [], None
    for step, gone in ((0, 0), (steps // 3, 4), (steps // 2, 0)):
        available = tuple(n for n in range(1, machines + 1) if n != gone)
        blocks = plan_step(available, speeds, recovery, 420).assignment.blocks
        moved = new_rows(last, blocks) if last else {}
        last = blocks
        assignments.append(
            {
                "step": step,
                "until": step + 3,
                "available": list(available),
                "blocks": [[b.start, b.stop, list(b.machines)] for b in blocks],
                "loads": [],
                "moved": {str(n): [list(span) for span in spans] for n, spans in moved.items()},
                "speeds": [*map(float, speeds[:-1]), None],
            }
        )
    return {
        "name": name,
        "machines": machines,
        "recovery": recovery,
        "rows": 420,
        "names": ["node<1>", *[""] * (machines - 1)],
        "steps": steps,
        "first": 0,
        "bin": bin,
        "bins": bins,
        "at": list(range(0, steps, bin)),
        "time": [],
        "series": {
            "measured": series(measured),
            "predicted": series(np.full(bins, 0.1)),
            "hindsight": series(np.full(bins, 0.095)),
        },
        "parts": {
            name: {"value": values} if bin == 1 else {"mid": values, "top": values}
            for name, values in {
                "announce": [0.01] * bins,
                "compute": list(measured),
                "load": [0.0] * bins,
            }.items()
        },
        "map": {
            "rows": machines,
            "bins": bins,
            "cells": base64.b64encode(cells.astype(np.uint8).tobytes()).decode(),
        },
        "speeds": {
            "bins": list(range(0, bins, 2)),
            "machines": [[None, *[float(s)] * (len(range(0, bins, 2)) - 1)] for s in speeds],
        },
        "events": [[steps // 2, 0, machines, "no answer"], [7, 2, None, "slow"], [9, 1, 2, ""]],
        "assignments": assignments,
        "left_out": 0,
        "progress": [
            {
                "name": "residual",
                "log": True,
                "step": list(range(steps)),
                "value": list(0.9 ** np.arange(steps)),
            }
        ],
        "checkpoints": [],
        "resumes": [],
    }


def data_of(*runs):
    return {"version": 1, "title": "", "kinds": MARKED, "states": STATES, "runs": list(runs)}


def words_of(path):
    return " ".join("".join(e.itertext()) for e in ET.parse(path).iter(f"{SVG}text"))


NAMES = ["availability", "makespan", "speeds", "parts", "progress"]
NAMES += ["assignment-0", "assignment-20", "assignment-30"]


def write_figures(data, place):
    place.mkdir(parents=True, exist_ok=True)
    contents = {place / name: content for name, content in figures_of(data).items()}
    for path, content in contents.items():
        path.write_bytes(content)
    return list(contents)


def test_each_figure_is_there_as_svg_and_png_and_says_what_it_shows(tmp_path):
    written = write_figures(data_of(run_of()), tmp_path / "new" / "figures")
    assert sorted(path.name for path in written) == sorted(
        f"{name}.{kind}" for name in NAMES for kind in ("svg", "png")
    )
    assert sorted(written) == sorted((tmp_path / "new" / "figures").iterdir())
    for path in written:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG\r\n")
    said = {path.stem: words_of(path) for path in written if path.suffix == ".svg"}
    for word in ("machine", "step", "preempted", "was lost", "joined", "computed"):
        assert word in said["availability"]
    assert "available, no rows" not in said["availability"]  # none was in this state
    for word in ("measured", "predicted", "best in hindsight", "makespan (s)", "was lost"):
        assert word in said["makespan"]
    assert "machine 6" in said["speeds"]
    assert "announce" in said["parts"]
    assert "load" not in said["parts"]  # which took no time
    assert "residual" in said["progress"]
    for word in (
        "steps 20 to 23",
        "Machine 4 not available",
        "new to the machine",
        "1 node<1> (",
        "learned speed",
    ):
        assert word in said["assignment-20"]


def test_equal_data_give_equal_files(tmp_path):
    run = run_of()
    run |= {"progress": [], "assignments": run["assignments"][1:2], "speeds": None, "parts": {}}
    one, other = (write_figures(data_of(run), tmp_path / name) for name in "ab")
    for a, b in zip(one, other, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_several_runs_are_numbered_and_compared(tmp_path):
    hostile = "<b>$x^2$\x1b[2J\\frac_" + "y" * 200
    runs = [run_of(), run_of(name=hostile)]
    for run in runs:
        run |= {"progress": [], "assignments": run["assignments"][:1], "speeds": None, "parts": {}}
    written = write_figures(data_of(*runs), tmp_path)
    names = ("availability", "makespan", "assignment-0")
    assert {path.stem for path in written} == {
        "makespans",
        *(f"{k}-{name}" for k in (1, 2) for name in names),
    }
    said = words_of(tmp_path / "makespans.svg")
    assert "run 1: results" in said
    assert r"run 2: <b>$x^2$\x1b[2J\frac_yyy" in said
    assert "\x1b" not in (tmp_path / "makespans.svg").read_text()


def test_many_machines_and_bins_are_small_files(tmp_path):
    run = run_of(200, 20_000, 20, recovery=40)
    run |= {"progress": [], "assignments": run["assignments"][:1], "parts": {}}
    written = write_figures(data_of(run), tmp_path)
    assert {"availability.svg", "speeds.png"} <= {path.name for path in written}
    assert max(path.stat().st_size for path in written) < 3_000_000
    assert "least to most" in words_of(tmp_path / "makespan.svg")
    assert "rows per second" in words_of(tmp_path / "speeds.svg")


def test_what_a_run_does_not_have_is_not_drawn(tmp_path):
    run = run_of(1, 1, recovery=1)
    run |= {"speeds": None, "progress": [], "assignments": [], "events": [], "parts": {}}
    run["series"] = {"measured": {"value": [0.5]}, "predicted": {"value": [None]}}
    written = write_figures(data_of(run), tmp_path)
    assert {path.stem for path in written} == {"availability", "makespan"}
    assert "predicted" not in words_of(tmp_path / "makespan.svg")


def test_without_matplotlib_a_message_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'cec_mpi\[plot\]'"):
        figures_of(data_of(run_of()))


def test_a_run_without_steps_has_no_figures(tmp_path):
    empty = run_of() | {"steps": 0, "bins": 0, "at": [], "time": [], "speeds": None}
    empty |= {
        "series": {},
        "parts": {"load": {"value": []}},
        "map": {"rows": 6, "bins": 0, "cells": ""},
    }
    empty |= {"events": [], "assignments": [], "progress": []}
    assert write_figures(data_of(empty), tmp_path) == []
    assert [path.stem for path in write_figures(data_of(empty, empty), tmp_path)] == [
        "makespans",
        "makespans",
    ]
