"""``cec-mpi advise``: recommend a store for given machines."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from dataclasses import asdict
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cec_mpi.cli.commands.parser import Parser
from cec_mpi.cli.commands.shared import add_json
from cec_mpi.errors import InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.availability import AvailabilityFlags, AvailabilityOptions
from cec_mpi.runtime.options.option import add_flag, add_option, from_flags
from cec_mpi.simulation.options import SimulateOptions
from cec_mpi.text import format_bytes, format_count, format_duration, plural
from cec_mpi.text.terminal import format_table, print_result

if TYPE_CHECKING:
    from cec_mpi.simulation.advise import Advice
    from cec_mpi.simulation.choices import AdviceRequest, Choice, Interval, MachineGroup


def add_advise(parser: Parser) -> None:
    """``cec-mpi advise``."""
    add_option(parser, SimulateOptions, "shape", text="rows and columns of X", required=True)
    for name in ("density", "dtype"):
        add_option(parser, SimulateOptions, name)
    add_flag(
        parser,
        "--machines COUNT:SPEED:MEMORY:PRICE",
        "a group of identical computers: their number, relative speed (default: 1), memory of each "
        "with its unit (default: unlimited) and price of each per hour, such as 16 or "
        "4:2:64G:0.30; may be repeated; a computer with three times the smallest memory may carry "
        "three machines",
        default=(),
        required=True,
    )
    add_flag(
        parser,
        "--free-memory FRACTION",
        "fraction of memory that each computer keeps free (default: 0.1)",
        values.number,
        default=0.1,
    )
    add_flag(parser, "--steps T", "number of steps of the run", values.positive, required=True)
    add_flag(
        parser,
        "--error E",
        "largest acceptable error, relative to |X| |w|, such as 1e-6 (default: 1e-2)",
        values.number,
    )
    exclusive = parser.add_mutually_exclusive_group()
    add_option(
        exclusive,
        AvailabilityFlags,
        "availability",
        text="trace of machines, spot instances or jobs; counts of several files are added; "
        "'example' is an included trace (default: all machines are always available)",
    )
    add_option(
        exclusive,
        AvailabilityFlags,
        "available_probability",
        text="probability that a machine is available in a tick",
    )
    add_option(
        parser,
        AvailabilityOptions,
        "tick_seconds",
        text="duration of a tick (default: from the trace, or 5m)",
    )
    add_flag(
        parser,
        "--noise SIGMA",
        "standard deviation of the logarithm of each speed in each step (default: 0)",
        values.number,
        default=0.0,
    )
    for name in ("rates_of", "rate", "latency", "bandwidth", "source", "decode"):
        add_option(parser, SimulateOptions, name)
    add_flag(
        parser,
        "--seeds K",
        "number of replayed runs of each choice (default: enough for 100 changes of availability, "
        "or 500 for the best choices)",
        values.positive,
    )
    add_json(parser)
    parser.set_defaults(command=_advise)


def _advise(arguments: argparse.Namespace) -> int:
    from cec_mpi.simulation.advise import advise

    request = _build_request(arguments)
    advice = advise(request)
    if arguments.json:
        print_result(json.dumps(_as_dict(request, advice), allow_nan=False))
    else:
        print_result(_format_advice(request, advice))
    return 0


def _build_request(arguments: argparse.Namespace) -> AdviceRequest:
    from cec_mpi.runtime.availability.reading import read_availability
    from cec_mpi.simulation.choices import AdviceRequest
    from cec_mpi.simulation.scenario_options import rates_and_costs

    rows, columns = arguments.shape
    free_fraction = arguments.free_memory
    if not 0 <= free_fraction < 1:
        raise InputError(f"--free-memory {free_fraction}: expected a number from 0 to below 1")
    rate, costs = rates_and_costs(from_flags(SimulateOptions, arguments))
    files = arguments.availability
    return AdviceRequest(
        rows=rows,
        columns=columns,
        density=1.0 if arguments.density is None else arguments.density,
        dtype=arguments.dtype or "float64",
        groups=[_parse_group(text, 1 - free_fraction) for text in arguments.machines],
        availability=cache(partial(read_availability, files)) if files else None,
        probability=arguments.available_probability,
        tick_seconds=arguments.tick_seconds,
        steps=arguments.steps,
        max_error=arguments.error,
        noise=arguments.noise,
        rate=rate,
        costs=costs,
        runs=arguments.seeds,
    )


def _parse_group(text: str, usable_fraction: float) -> MachineGroup:
    """Parse ``COUNT:SPEED:MEMORY:PRICE``."""
    from cec_mpi.simulation.choices import MachineGroup

    parts = text.split(":")
    try:
        if not 1 <= len(parts) <= 4:
            raise ValueError
        fields = dict(zip(("count", "speed", "memory", "price"), parts, strict=False))
        group = MachineGroup(
            values.positive(fields["count"]),
            float(fields.get("speed") or 1),
            int(values.size_with_unit(fields["memory"]) * usable_fraction)
            if fields.get("memory")
            else None,
            float(fields["price"]) if fields.get("price") else None,
        )
        if not group.is_valid:
            raise ValueError
    except (ValueError, argparse.ArgumentTypeError):
        raise InputError(
            f"--machines {text!r}: expected COUNT, COUNT:SPEED, COUNT:SPEED:MEMORY or "
            "COUNT:SPEED:MEMORY:PRICE, such as 4:2:64G:0.30, with a unit of memory, numbers from "
            f"{values.MIN_VALUE:.0e} to {values.MAX_VALUE:.0e}, and a price of at least 0"
        ) from None
    return group


def _format_advice(request: AdviceRequest, advice: Advice) -> str:
    from cec_mpi.simulation.advise import format_percent

    encode_header = f"cec-mpi encode X store --dtype {request.dtype}"
    rows = []
    for choice in advice.front:
        simulated, cost, waiting = choice.simulated_total, choice.cost, choice.waiting_fraction
        rows.append(
            {
                "": "*" if choice is advice.recommended else "",
                encode_header: choice.encode_options(advice.speeds),
                "with run": choice.run_options(),
                "per computer": _per_computer_text(choice),
                "store": format_bytes(choice.storage),
                "largest": format_bytes(choice.max_computer_bytes),
                "may be away": str(choice.tolerated_losses),
                "lost digits": f"{choice.lost_digits:.1f}",
                "step": format_duration(choice.step.mean),
                "waiting": format_percent(waiting) if waiting else "-",
                "mean wait": format_duration(choice.mean_wait) if choice.mean_wait else "-",
                "total": format_duration(choice.total.mean),
                "95 %": _interval_text(choice.total),
                "simulated": "-" if simulated is None else format_duration(simulated.mean),
                "cost": "-" if cost is None else f"{cost:.2f}",
            }
        )
    for name, total in advice.baselines.items():
        totals = {"total": format_duration(total.mean), "95 %": _interval_text(total)}
        rows.append({"": "", encode_header: f"{name}, without a code", **totals})
    optional_columns = {
        "with run": any(choice.run_options() for choice in advice.front),
        "per computer": any(choice.machines_per_computer for choice in advice.front),
        "cost": advice.recommended.cost is not None,
    }
    columns = [column for column in rows[0] if optional_columns.get(column, True)]
    lines = [
        f"{plural(len(advice.machines), 'machine')}, {format_count(request.steps, 'step')}",
        "",
    ]
    right_aligned = {*columns} - {"", encode_header, "with run", "per computer", "95 %"}
    lines += format_table(
        columns, [[row.get(column, "-") for column in columns] for row in rows], right_aligned
    )
    rejections = [
        f"Rejected: {choice_name}: {reason}" for choice_name, reason in advice.rejections.items()
    ]
    alternatives = [advice.alternative] if advice.alternative else []
    for paragraph in (rejections, alternatives, [advice.summary]):
        lines += [""] if paragraph else []
        for text in paragraph:
            lines += textwrap.wrap(text, shutil.get_terminal_size().columns)
    return "\n".join(lines)


def _interval_text(total: Interval) -> str:
    return f"{format_duration(total.low)} to {format_duration(total.high)}"


def _per_computer_text(choice: Choice) -> str:
    """Return how many machines the computers carry, in order.

    For example, ``2x1 1x4`` means 1, 1 and 4 machines. The result is 1 if each computer has one.
    """
    groups = [
        (machines, len(list(group))) for machines, group in groupby(choice.machines_per_computer)
    ]
    return " ".join(f"{computers}x{machines}" for machines, computers in groups) or "1"


def _as_dict(request: AdviceRequest, advice: Advice) -> dict[str, Any]:
    def choice_dict(choice: Choice) -> dict[str, Any]:
        simulated = choice.simulated_total
        return {
            **asdict(choice),
            **{name: getattr(choice, name)._asdict() for name in ("step", "total")},
            "simulated_total": None if simulated is None else simulated._asdict(),
            "encode": choice.encode_command(request.dtype, advice.speeds),
            "run": choice.run_options(),
            "recommended": choice is advice.recommended,
        }

    return {
        "choices": [choice_dict(choice) for choice in advice.front],
        "baselines": {name: total._asdict() for name, total in advice.baselines.items()},
        "summary": advice.summary,
        "alternative": advice.alternative,
        "rejected": advice.rejections,
    }
