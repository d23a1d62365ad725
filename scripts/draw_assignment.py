"""Draw one assignment as the README shows it: python scripts/draw_assignment.py OUT.svg.

Needs matplotlib (pip install 'cec_mpi[plot]').
"""

from __future__ import annotations

import sys

import matplotlib as mpl
from matplotlib.figure import Figure

from cec_mpi.availability.models import PAPER_AVAILABLE
from cec_mpi.core.plan.planner import plan_step

SPEEDS = (2.0, 2.0, 3.0, 3.0, 4.0, 4.0)
ROWS, RECOVERY = 420, 3
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44")  # told apart by the colour-blind too


def main() -> None:
    mpl.rcParams["svg.hashsalt"] = "cec_mpi"  # the same file each time
    figure = Figure(figsize=(8.4, 3.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, available in zip(panels, PAPER_AVAILABLE[:2], strict=True):
        plan = plan_step(available, SPEEDS, RECOVERY, ROWS)
        for number, block in enumerate(plan.assignment.blocks, start=1):
            for machine in block.machines:
                panel.barh(
                    machine,
                    block.stop - block.start,
                    left=block.start,
                    color=COLOURS[number - 1],
                    edgecolor="white",
                    label=f"block {number}" if machine == block.machines[0] else None,
                )
        away = [n for n in range(1, 7) if n not in available]
        for machine in away:
            panel.text(ROWS / 2, machine, "preempted", ha="center", va="center", color="#777777")
        panel.set_title(
            f"{'All machines' if not away else f'Machine {away[0]} preempted'}: "
            f"makespan {plan.makespan:g}",
            fontsize=10,
        )
        panel.set_xlim(0, ROWS)
        panel.set_xlabel("rows of each shard")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(1, 7), [f"{n} (speed {s:g})" for n, s in enumerate(SPEEDS, 1)])
    panels[0].set_ylabel("machine")
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(sys.argv[1], metadata={"Date": None} if sys.argv[1].endswith("svg") else None)


if __name__ == "__main__":
    main()
