"""Show which machine would compute which rows: plan."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cec_mpi.cli.commands.parser import Parser
from cec_mpi.cli.commands.shared import add_json
from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.report.drawing.drawn_assignment import DrawnAssignment, block_letter
from cec_mpi.report.drawing.iterations import iterations_table
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.elastic import ElasticOptions
from cec_mpi.runtime.options.option import add_flag, add_option
from cec_mpi.runtime.options.shards import AssignmentOptions
from cec_mpi.text import plural, truncate
from cec_mpi.text.terminal import facts_table, format_table, print_result

if TYPE_CHECKING:
    from cec_mpi.core.replicas.holders import Holders
    from cec_mpi.core.replicas.parts import Parts

_MAX_DRAWN = 2000  # machines


def add_plan(parser: Parser) -> None:
    """``cec-mpi plan``."""
    parser.description = (
        "Show which machine would compute which rows. Needs a store, or --speeds, --rows and "
        "either --recovery (a code) or --copies (of sparse rows)."
    )
    parser.add_argument("store", metavar="STORE", nargs="?", help="directory made by encode")
    add_flag(
        parser,
        "--speeds LIST",
        "relative speeds of machines 1 to N, such as 2,2,3 or 1/3,1,1 (default with STORE: equal)",
        values.fractions,
    )
    add_flag(parser, "--recovery L", "number of machines that compute each row", values.positive)
    add_flag(
        parser, "--copies J", "number of machines that hold each row of a sparse X", values.positive
    )
    add_option(parser, EncodeOptions, "spread")
    add_flag(parser, "--rows R", "rows per shard; with --copies, rows of X", values.positive)
    add_flag(
        parser,
        "--available LIST",
        "machines that are available, such as 1-3,5 (default: all)",
        values.machines,
    )
    add_option(
        parser,
        ElasticOptions,
        "stragglers",
        text="compute each row on S additional machines (default: 0)",
    )
    add_option(parser, AssignmentOptions, "scheme")
    add_flag(parser, "--exact", "also print the exact fractions of the paper", default=False)
    add_flag(parser, "--steps", "also print the iterations of Algorithm 1", default=False)
    add_flag(
        parser,
        "--figure FILE",
        "also write a figure: out.svg, out.pdf or out.png (needs matplotlib)",
    )
    add_flag(
        parser,
        "--before LIST",
        "machines that were available in the previous step; the figure shows what changes",
        values.machines,
    )
    add_json(parser)
    parser.set_defaults(command=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    replicas = _complete_arguments(arguments)
    all_machines = tuple(range(1, len(arguments.speeds) + 1))
    if arguments.before and arguments.figure is None:
        raise InputError("--before needs --figure FILE, which shows what changes")
    for name in ("available", "before"):
        machines = getattr(arguments, name)
        if machines and max(machines) > len(all_machines):
            raise InputError(
                f"--{name}: found machine {max(machines)}, expected 1 to {len(all_machines)}"
            )
    if replicas is not None:
        return _print_plan_of_copies(arguments, *replicas, arguments.available or all_machines)
    plan = _explain_code(arguments, arguments.available or all_machines)
    if arguments.figure is not None:
        _write_figure(arguments, plan)
    text = json.dumps(plan, allow_nan=False) if arguments.json else _format_plan(arguments, plan)
    print_result(text)
    return 0


def _complete_arguments(arguments: argparse.Namespace) -> tuple[Parts, Holders] | None:
    """Set missing arguments from a store; return parts and holders if rows have copies."""
    if arguments.store is None:
        missing = [name for name in ("speeds", "rows") if getattr(arguments, name) is None]
        if missing or (arguments.recovery is None) == (arguments.copies is None):
            raise InputError(
                "expected a store, or --speeds, --rows and one of --recovery and --copies"
            )
        if arguments.copies is None:
            return None
        return _spread_copies(arguments)
    for name in ("recovery", "copies", "rows"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name} cannot be combined with a store, which sets it")
    from cec_mpi.store import open_store

    store = open_store(arguments.store)
    code = store.manifest.code
    if arguments.speeds is None:
        arguments.speeds = (Fraction(1),) * code.machines
    if len(arguments.speeds) != code.machines:
        raise InputError(
            f"--speeds: found {plural(len(arguments.speeds), 'speed')}, expected one for each of "
            f"the {code.machines} machines of {arguments.store}"
        )
    if (replicas := store.parts()) is not None:
        parts, placement = replicas
        return parts, placement.holders
    arguments.recovery, arguments.rows = code.recovery, store.manifest.rows_per_shard
    return None


def _spread_copies(arguments: argparse.Namespace) -> tuple[Parts, Holders]:
    """Return the parts and holders that encode would choose if all rows cost the same."""
    import numpy as np

    from cec_mpi.core.replicas.holders import spread_copies
    from cec_mpi.core.replicas.parts import PARTS_PER_MACHINE, cut_parts

    speeds = [float(speed) for speed in arguments.speeds]
    parts = cut_parts(np.arange(arguments.rows + 1), PARTS_PER_MACHINE * len(speeds))
    return parts, spread_copies(parts.count, speeds, arguments.copies, arguments.spread)


def _print_plan_of_copies(
    arguments: argparse.Namespace, parts: Parts, holders: Holders, available: Sequence[int]
) -> int:
    """Print the plan of machines that hold copies of sparse rows."""
    for name in ("figure", "steps", "exact"):
        if getattr(arguments, name):
            raise InputError(f"--{name} needs a code, found copies of sparse rows")
    if arguments.scheme != "heterogeneous":
        raise InputError(f"--scheme {arguments.scheme} needs a code, found copies of sparse rows")
    from cec_mpi.cli.commands.explain import explain_copies
    from cec_mpi.store.replicas.facts import balance_fact, loss_facts

    speeds = [float(speed) for speed in arguments.speeds]
    plan = explain_copies(parts, holders, available, speeds, arguments.stragglers)
    if arguments.json:
        print_result(json.dumps(plan, allow_nan=False))
        return 0
    available_machines = set(available)
    rows = [
        [
            str(n),
            f"{speed:g}",
            f"{held_fraction:.1%}",
            str(load) if n in available_machines else "preempted",
        ]
        for n, (speed, held_fraction, load) in enumerate(
            zip(speeds, plan["held_fractions"], plan["loads"], strict=True), start=1
        )
    ]
    unit = "rows with the mean number of nonzeros, at speed 1"
    makespan = f"{plan['makespan']:.5g} {unit} (lower bound {plan['bound']:.5g})"
    facts = loss_facts(
        min(map(len, plan["fatal"])),
        plan["loss_probability"] if len(available_machines) == len(speeds) else {},
        plan["fatal"],
    )
    balance = balance_fact(*plan["over_optimum"].values())
    print_result(
        "\n".join(
            [
                *format_table(["machine", "speed", "holds", "rows"], rows, ["machine", "speed"]),
                "",
                facts_table([*facts, balance, ("makespan", makespan)]),
            ]
        )
    )
    return 0


def _fraction_lines(plan: dict[str, Any]) -> list[str]:
    if "mu" not in plan:
        return []
    k_star = "-" if plan["k_star"] is None else plan["k_star"]  # undefined if N_t = L
    return [
        f"mu     {' '.join(plan['mu'])}",
        f"alpha  {' '.join(plan['alpha'])}",
        f"c*     {plan['c_star']}   k* {k_star} (of the best assignment)",
    ]


def _explain_code(arguments: argparse.Namespace, available: Sequence[int]) -> dict[str, Any]:
    from cec_mpi.cli.commands.explain import explain_plan

    return explain_plan(
        available,
        arguments.speeds,
        arguments.recovery,
        arguments.rows,
        stragglers=arguments.stragglers,
        scheme=arguments.scheme,
        exact=arguments.exact,
        steps=arguments.steps,
    )


def _write_figure(arguments: argparse.Namespace, plan: dict[str, Any]) -> None:
    from cec_mpi.report.drawing.drawn_assignment import find_new_rows
    from cec_mpi.report.drawing.lanes import draw
    from cec_mpi.report.drawing.pictures import check_suffix, picture_style, write_picture

    check_suffix(arguments.figure)
    machines = len(arguments.speeds)
    if machines > _MAX_DRAWN:
        raise InputError(f"--figure: found {machines} machines, expected at most {_MAX_DRAWN}")
    panels = [_drawn_assignment(plan, arguments.speeds)]
    if arguments.before:
        try:
            previous_plan = _explain_code(arguments, arguments.before)
        except (InputError, InfeasibleError) as error:
            raise type(error)(f"--before: {error}") from None
        previous = _drawn_assignment(previous_plan, arguments.speeds)
        new_rows = find_new_rows(previous.blocks, panels[0].blocks)
        panels = [previous, replace(panels[0], new_rows=new_rows)]
    machines_per_row = arguments.recovery + arguments.stragglers
    machines_text = plural(machines, "machine")
    if machines_per_row < machines:
        machines_text = f"{machines_per_row} of {machines_text}"
    heading = f"{machines_text} {'computes' if machines_per_row == 1 else 'compute'} each row"
    with picture_style():
        figure = draw(panels, heading, plan.get("iterations", ()))
        write_picture(figure, arguments.figure, heading)


def _drawn_assignment(plan: dict[str, Any], speeds: Sequence[Fraction]) -> DrawnAssignment:
    from cec_mpi.core.plan.assignment import Block

    labels = [f"{n} (speed {float(speed):.4g})" for n, speed in enumerate(speeds, start=1)]
    blocks = [Block(b["start"], b["stop"], tuple(b["machines"])) for b in plan["blocks"]]
    available = tuple(plan["available"])
    preempted = sorted(set(range(1, len(speeds) + 1)) - set(available))
    title = f"Machine{'s' * (len(preempted) > 1)} {truncate(preempted, 6)} preempted"
    title = title if preempted else "All machines available"
    return DrawnAssignment(
        len(speeds), plan["rows"], available, blocks, title, _makespan_line(plan), labels
    )


def _format_plan(arguments: argparse.Namespace, plan: dict[str, Any]) -> str:
    """Return a plan as text: machines, then blocks in the order of Algorithm 1."""
    lines = [
        *_machine_table(plan, arguments.speeds),
        "",
        *_block_table(plan),
        "",
        _makespan_line(plan),
    ]
    lines += _fraction_lines(plan)
    if "iterations" in plan:
        # sys.stdout is None if the process was started without standard output.
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else None
        lines += ["", *iterations_table(plan["available"], plan["iterations"], width)]
    return "\n".join(lines)


def _machine_table(plan: dict[str, Any], speeds: Sequence[Fraction]) -> list[str]:
    """Return a table of machines with their speeds and rows."""
    available = set(plan["available"])
    rows = [
        [str(n), f"{float(speed):g}", str(load) if n in available else "preempted"]
        for n, (speed, load) in enumerate(zip(speeds, plan["loads"], strict=True), start=1)
    ]
    return format_table(["machine", "speed", "rows"], rows, ["machine", "speed"])


def _block_table(plan: dict[str, Any]) -> list[str]:
    """Return a table of blocks with their rows and machines."""
    rows = [
        [
            block_letter(f),
            f"{block['start']}..{block['stop'] - 1}",
            " ".join(map(str, block["machines"])),
        ]
        for f, block in enumerate(plan["blocks"], start=1)
    ]
    return format_table(["block", "rows", "machines"], rows)


def _makespan_line(plan: dict[str, Any]) -> str:
    makespan, bound = plan["makespan"], plan["bound"]
    if makespan is None or bound is None:
        return f"makespan more than {sys.float_info.max:.3g}"
    return f"makespan {makespan:g} (lower bound {bound:g})"
