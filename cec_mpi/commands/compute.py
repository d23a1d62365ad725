"""Commands that compute or prepare to: plan, run, doctor."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from cec_mpi import values
from cec_mpi.errors import InputError
from cec_mpi.runtime.launchers import detect_launcher
from cec_mpi.runtime.signals import NotedSignals
from cec_mpi.runtime.together import run_together

__all__ = ["add_doctor", "add_plan", "add_run"]

# As in cec_mpi.store.reader, which the parser is built without: it loads all of the store.
HOLDINGS = ("mmap", "ram")
VERIFYING = ("first-read", "never")


def add_plan(commands: Any) -> None:
    """``cec-mpi plan``."""
    p = commands.add_parser("plan", help="show who would compute which rows (no MPI)")
    p.add_argument(
        "--speeds", type=values.fractions, required=True, metavar="LIST", help="as 2,2,3 or 1/3"
    )
    p.add_argument("--recovery", type=values.positive, required=True, metavar="L")
    p.add_argument(
        "--rows", type=values.positive, required=True, metavar="R", help="rows per shard"
    )
    p.add_argument(
        "--available", type=values.machines, metavar="LIST", help="by default all machines"
    )
    p.add_argument(
        "--stragglers", type=values.whole, default=0, metavar="S", help="each row on L + S machines"
    )
    p.add_argument("--scheme", choices=["heterogeneous", "cyclic"], default="heterogeneous")
    p.add_argument("--exact", action="store_true", help="add the paper's fractions")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    p.set_defaults(command=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from cec_mpi.core.explain import explain_plan

    available = arguments.available or tuple(range(1, len(arguments.speeds) + 1))
    plan = explain_plan(
        available,
        arguments.speeds,
        arguments.recovery,
        arguments.rows,
        stragglers=arguments.stragglers,
        scheme=arguments.scheme,
        exact=arguments.exact,
    )
    print(json.dumps(plan, allow_nan=False) if arguments.json else _table(plan, arguments.speeds))
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
    return "\n".join(lines)


def add_run(commands: Any) -> None:
    """``cec-mpi run``."""
    p = commands.add_parser(
        "run",
        help="compute with a store, under mpirun with N + 1 ranks",
        description="Compute with a store: mpirun -n N+1 cec-mpi run STORE --out DIR ...",
    )
    p.add_argument("store", metavar="STORE", help="{host} in it is the name of each node")
    p.add_argument("--out", type=values.path, required=True, metavar="DIR", help="for the results")
    p.add_argument(
        "--task",
        default="matvec",
        help="matvec, power, pagerank, svd, pca, lstsq, ridge, logistic, cg, or my_module:function",
    )
    p.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the task"
    )
    p.add_argument("--vectors", metavar="W.npy", help="for matvec: (T, r), one step a row")
    p.add_argument("--steps", type=values.positive, metavar="T", help="the most steps")
    who = p.add_argument_group("who is available")
    source = who.add_mutually_exclusive_group()
    source.add_argument(
        "--availability", nargs="+", default=[], metavar="FILE", help="JSON or CSV, one tick a step"
    )
    source.add_argument("--available-probability", type=values.number, metavar="P")
    source.add_argument(
        "--availability-command", metavar="CMD", help="prints the numbers of those that are up"
    )
    who.add_argument(
        "--availability-every",
        type=values.seconds,
        metavar="SECONDS",
        help="that an answer of the command holds, by default 1",
    )
    who.add_argument("--repeat", action="store_true", help="start the availability file again")
    who.add_argument("--tick", type=values.number, metavar="SECONDS", help="wall-clock ticks")
    who.add_argument("--wait", action="store_true", help="wait while too few are available")
    who.add_argument(
        "--machines", type=values.machines, metavar="LIST", help="start only these, as 1,2,5"
    )
    how = p.add_argument_group("how it is shared out")
    how.add_argument(
        "--speeds",
        type=values.speeds_or_learn,
        default="learn",
        metavar="LIST|learn",
        help="relative, as 2,2,3, or by host, as node01=2,node02=1; by default learned from "
        "measured times",
    )
    how.add_argument("--scheme", choices=["heterogeneous", "cyclic"], default="heterogeneous")
    how.add_argument(
        "--map",
        action="store_true",
        help="print which machine runs where and reads its shard from where, then go on",
    )
    how.add_argument("--threads", type=values.positive, metavar="K", help="BLAS threads per rank")
    how.add_argument(
        "--shards", choices=HOLDINGS, default="mmap", help="rows in the page cache, or in memory"
    )
    how.add_argument(
        "--verify", choices=VERIFYING, default="first-read", help="when rows are checked"
    )
    how.add_argument(
        "--staged", metavar="DIR", help="copies of the shards, by default where stage put them"
    )
    how.add_argument("--serial", action="store_true", help="all machines in one process, no MPI")
    loss = p.add_argument_group("late and lost machines")
    loss.add_argument(
        "--stragglers",
        type=values.whole,
        default=0,
        metavar="S",
        help="each row on L + S machines, of which the first L count",
    )
    loss.add_argument(
        "--deadline",
        metavar="SECONDS|x1.5",
        help="give a machine up for the step, after so long or so many times what was expected",
    )
    loss.add_argument(
        "--on-loss",
        choices=["end", "continue"],
        default="end",
        help="whether losing a machine ends the job",
    )
    loss.add_argument(
        "--spares",
        type=values.whole,
        default=0,
        metavar="K",
        help="ranks more than N + 1, to take the place of lost machines",
    )
    loss.add_argument(
        "--replace",
        choices=["spare", "spawn"],
        default="spare",
        help="spawn: without a spare, start a process in the place of a lost machine",
    )
    loss.add_argument(
        "--check",
        choices=["none", "parity", "sample"],
        default="none",
        help="compare one answer more than needed, of all rows or of a few, and replace wrong ones",
    )
    loss.add_argument(
        "--inject",
        default="",
        metavar="FAULTS",
        help="on order, as kill:3@10,stop:2@20,slow:5@30x4,corrupt:1@40,leave:4@50 or random:0.01",
    )
    emulate = p.add_argument_group("emulation of slower machines")
    emulate.add_argument("--emulate-speeds", type=values.speeds, metavar="LIST")
    emulate.add_argument(
        "--emulate-base", type=values.number, metavar="B", help="rows per second of speed 1"
    )
    emulate.add_argument("--emulate-noise", type=values.number, default=0.0, metavar="SIGMA")
    emulate.add_argument(
        "--emulate-change",
        type=values.change,
        action="append",
        default=[],
        metavar="STEP:MACHINE:FACTOR",
    )
    p.add_argument("--seed", type=values.whole, default=0, help="of everything random")
    again = p.add_mutually_exclusive_group()
    again.add_argument("--overwrite", action="store_true", help="replace the results in DIR")
    again.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint in DIR, if there is one"
    )
    p.add_argument(
        "--checkpoint-every", type=values.positive, metavar="T", help="steps between checkpoints"
    )
    p.add_argument(
        "--time-limit",
        type=values.seconds,
        metavar="SECONDS",
        help="then write a checkpoint and leave with exit code 6",
    )
    p.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> int:
    from cec_mpi.job import run_parallel, run_serial

    launcher = detect_launcher()
    if arguments.serial:
        if launcher is not None and launcher.size > 1:
            raise InputError(f"--serial: {launcher.name} started {launcher.size} processes")
        with NotedSignals(second_ends=True) as signals:
            return run_serial(arguments, signals)
    if launcher is None:
        raise InputError(
            "run is started by an MPI launcher: mpirun -n N+1 cec-mpi run ... "
            "(or --serial for all machines in one process)"
        )
    with NotedSignals(second_ends=launcher.rank == 0) as signals:
        return run_together(lambda comm: run_parallel(comm, arguments, signals))


def add_doctor(commands: Any) -> None:
    """``cec-mpi doctor``."""
    p = commands.add_parser(
        "doctor", help="check that MPI, ranks, cores, threads, nodes and the wire fit together"
    )
    p.add_argument(
        "store",
        metavar="STORE",
        nargs="?",
        help="check that each machine sees its shard, too; {host} in it is the name of each node",
    )
    p.add_argument("--threads", type=values.positive, metavar="K", help="as run will be given")
    p.add_argument("--json", action="store_true", help="one JSON object, with figures by rank")
    p.set_defaults(command=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from cec_mpi.doctor import examine

    return run_together(
        lambda comm: examine(comm, arguments.store, arguments.json, arguments.threads)
    )
