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


def disturbance_options(change, machine, step, machines):
    all_machines = tuple(range(1, machines + 1))
    other_machines = tuple(n for n in all_machines if n != machine)
    return {
        "killed": {"inject": f"kill:{machine}@{step}", "elastic": True},
        "stopped": {"inject": f"stop:{machine}@{step}", "elastic": True},
        "preempted": {"availability": [all_machines] * step + [other_machines]},
        "emulated": {"emulate_changes": (SpeedChange(step, machine, 0.25),)},
    }[change]


@pytest.mark.parametrize(("speeds", "recovery", "machine", "step", "steps"), RUNS)
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ("killed", "losses"),
        ("stopped", "lateness"),
        ("preempted", "preemption"),
        ("emulated", "lateness"),
    ],
)
def test_the_time_lost_to_a_machine_is_exact(
    tmp_path, change, cause, speeds, recovery, machine, step, steps
):
    options = {"emulate_speeds": speeds, "emulate_base": BASE}
    options["speeds"] = "learn" if change == "emulated" else speeds
    shape = {"machines": len(speeds), "recovery": recovery, "rows": ROWS, "columns": 10}
    durations = [
        simulate(
            Scenario(
                **shape, options=SessionOptions(**options, **disturbance), costs=FREE, steps=steps
            ),
            tmp_path / name,
        ).seconds
        for name, disturbance in {
            "undisturbed": {},
            "run": disturbance_options(change, machine, step, len(speeds)),
        }.items()
    ]
    undisturbed = ROWS / BASE / sum(speeds)
    speed = speeds[machine - 1]
    disturbed = ROWS / BASE / (sum(speeds) - (0.75 if change == "emulated" else 1) * speed)
    extra = (steps - step) * (disturbed - undisturbed)
    run = Run(str(tmp_path / "run"))
    lost = run.time_totals.lost_seconds[cause]
    assert sum(run.time_totals.lost_seconds.values()) == pytest.approx(lost)
    if change in ("killed", "preempted"):
        assert lost == pytest.approx(extra, rel=0.02)
    else:  # also the time until other machines take over, or its speed is learned
        assert lost > extra
    assert lost == pytest.approx(durations[1] - durations[0], rel=0.02)
    table = machine_table(run)
    columns = {column["label"]: n for n, column in enumerate(table["columns"], start=1)}
    first, *other_rows = table["rows"]
    assert (first[0], first[columns["Delay"]]) == (machine, pytest.approx(lost, rel=0.02))
    assert sum(row[columns["Delay"]] for row in other_rows) < 0.1 * lost
    if change != "emulated":
        word = {"killed": "lost", "stopped": "late"}.get(change, change)
        assert first[columns["Left"]].startswith(f"step {step} ({word}")
    figure = key_figures(run)[1]
    assert figure.label == "Time lost"
    assert figure.note.endswith(cause)
