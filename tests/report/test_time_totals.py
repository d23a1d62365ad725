"""Time lost to machines that are killed, stopped, preempted or slower, computed by hand.

Runs are simulated without overhead, so a step takes q / (sum of speeds).
"""

import pytest

from cec_mpi.report.headline import key_figures, machine_table
from cec_mpi.report.recorded_run import Run
from cec_mpi.runtime.machine.emulation import SpeedChange
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.scenario import Scenario
from cec_mpi.simulation.simulate import simulate
from helpers.costs import FREE

ROWS, BASE = 60_000, 1000.0
RUNS = [((2.0, 2.0, 3.0, 3.0, 4.0, 4.0), 3, 6, 10, 50), ((1.0, 1.0, 2.0, 2.0, 3.0), 2, 3, 5, 40)]


def options_of(change, machine, at, machines):
    everyone = tuple(range(1, machines + 1))
    others = tuple(n for n in everyone if n != machine)
    return {
        "killed": {"inject": f"kill:{machine}@{at}", "elastic": True},
        "stopped": {"inject": f"stop:{machine}@{at}", "elastic": True},
        "preempted": {"availability": [everyone] * at + [others]},
        "emulated": {"emulate_changes": (SpeedChange(at, machine, 0.25),)},
    }[change]


@pytest.mark.parametrize(("speeds", "recovery", "machine", "at", "steps"), RUNS)
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("killed", "losses"),
        ("stopped", "lateness"),
        ("preempted", "preemption"),
        ("emulated", "lateness"),
    ],
)
def test_the_time_lost_to_a_machine_is_exact(
    tmp_path, change, what, speeds, recovery, machine, at, steps
):
    known = {"emulate_speeds": speeds, "emulate_base": BASE}
    known["speeds"] = "learn" if change == "emulated" else speeds
    shape = {"machines": len(speeds), "recovery": recovery, "rows": ROWS, "columns": 10}
    took = [
        simulate(
            Scenario(**shape, options=SessionOptions(**known, **more), costs=FREE, steps=steps),
            tmp_path / name,
        ).seconds
        for name, more in {
            "undisturbed": {},
            "run": options_of(change, machine, at, len(speeds)),
        }.items()
    ]
    without = ROWS / BASE / sum(speeds)
    speed = speeds[machine - 1]
    changed = ROWS / BASE / (sum(speeds) - (0.75 if change == "emulated" else 1) * speed)
    longer = (steps - at) * (changed - without)
    run = Run(str(tmp_path / "run"))
    lost = run.time_totals.lost_seconds[what]
    assert sum(run.time_totals.lost_seconds.values()) == pytest.approx(lost)
    if change in ("killed", "preempted"):
        assert lost == pytest.approx(longer, rel=0.02)
    else:  # also the time until the others take over, or its speed is learned
        assert lost > longer
    assert lost == pytest.approx(took[1] - took[0], rel=0.02)
    table = machine_table(run)
    columns = {column["label"]: n for n, column in enumerate(table["columns"], start=1)}
    first, *others = table["rows"]
    assert (first[0], first[columns["Delay"]]) == (machine, pytest.approx(lost, rel=0.02))
    assert sum(row[columns["Delay"]] for row in others) < 0.1 * lost
    if change != "emulated":
        word = {"killed": "lost", "stopped": "late"}.get(change, change)
        assert first[columns["Left"]].startswith(f"step {at} ({word}")
    figure = key_figures(run)[1]
    assert figure.label == "Time lost"
    assert figure.note.endswith(what)
