"""Who would compute which rows, without any machine: plan."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from cec_mpi.commands.shared import add_json
from cec_mpi.drawing.steps import steps_table
from cec_mpi.options import values
from cec_mpi.options.losses import Losses
from cec_mpi.options.option import add_flag, add_option
from cec_mpi.options.sharing import Sharing
from cec_mpi.terminal import put


def add_plan(commands: Any) -> None:
    """``cec-mpi plan``."""
    p = commands.add_parser("plan", help="show who would compute which rows (no MPI)")
    add_flag(p, "--speeds LIST", "as 2,2,3 or 1/3", values.fractions, required=True)
    add_flag(p, "--recovery L", parse=values.positive, required=True)
    add_flag(p, "--rows R", "rows per shard", values.positive, required=True)
    add_flag(p, "--available LIST", "by default all machines", values.machines)
    add_option(p, Losses, "stragglers", text="each row on L + S machines")
    add_option(p, Sharing, "scheme")
    add_flag(p, "--exact", "add the paper's fractions", default=False)
    add_flag(p, "--steps", "add what Algorithm 1 does, step by step", default=False)
    add_json(p)
    p.set_defaults(command=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from cec_mpi.core.plan.explain import explain_plan

    available = arguments.available or tuple(range(1, len(arguments.speeds) + 1))
    plan = explain_plan(
        available,
        arguments.speeds,
        arguments.recovery,
        arguments.rows,
        stragglers=arguments.stragglers,
        scheme=arguments.scheme,
        exact=arguments.exact,
        steps=arguments.steps,
    )
    put(json.dumps(plan, allow_nan=False) if arguments.json else _table(plan, arguments.speeds))
    return 0


def _table(plan: dict[str, Any], speeds: Sequence[Fraction]) -> str:
    """A plan for people: machines, then blocks in the order of the rows."""
    available = set(plan["available"])
    lines = ["machine  speed  rows"]
    for n, (speed, rows) in enumerate(zip(speeds, plan["loads"], strict=True), start=1):
        state = rows if n in available else "preempted"
        lines.append(f"{n:7}  {float(speed):5g}  {state}")
    lines.append("")
    lines.append("rows           machines")
    for block in sorted(plan["blocks"], key=lambda block: int(block["start"])):
        span = f"{block['start']}..{block['stop'] - 1}"
        lines.append(f"{span:13}  {' '.join(map(str, block['machines']))}")
    lines.append("")
    makespan, bound = (
        math.inf if plan[key] is None else plan[key] for key in ("makespan", "bound")
    )
    lines.append(f"makespan {makespan:g} (no assignment is below {bound:g})")
    if "mu" in plan:
        lines.append(f"mu     {' '.join(plan['mu'])}")
        lines.append(f"alpha  {' '.join(plan['alpha'])}")
        lines.append(f"c*     {plan['c_star']}   k* {plan['k_star']} (of the best assignment)")
    if "iterations" in plan:
        lines += ["", *steps_table(plan["available"], plan["iterations"])]
    return "\n".join(lines)
