"""The command line: one parser, one short function per command."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NoReturn

import cec_mpi
from cec_mpi import values
from cec_mpi.errors import CecError, DamagedStoreError, InputError
from cec_mpi.runtime.launch import as_cec_error, complain, detect_launcher, run_together

__all__ = ["main"]

_PARALLEL = ("run", "doctor")


class _Parser(argparse.ArgumentParser):
    """A parser that raises instead of leaving: under mpirun all ranks leave together.

    Options cannot be abbreviated: a new one would change what an old script means.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    launcher = detect_launcher()
    parallel = bool(argv) and argv[0] in _PARALLEL and not {"-h", "--help", "--serial"} & set(argv)
    if not parallel and launcher is not None and launcher.rank != 0:
        return 0  # these commands are one process's work, and print once
    try:
        arguments = build_parser().parse_args(argv)
        command: Callable[[argparse.Namespace], int] = arguments.command
    except InputError as error:
        return _all_leave_with(error) if parallel else _leave_with(error)
    if not parallel:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # tidy up first
    try:
        code = command(arguments)
        if sys.stdout is not None:  # as it is when standard output was closed before
            sys.stdout.flush()
        return code
    except CecError as error:
        return _leave_with(error)
    except BrokenPipeError:  # the reader of our output has seen enough
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        return _leave_with(as_cec_error(error))
    except KeyboardInterrupt:
        return 130


def _drop_output() -> None:
    """Let what is still to be written go nowhere, so that leaving does not fail on it."""
    with contextlib.suppress(
        OSError, ValueError, AttributeError
    ):  # no file descriptor: nothing to drop
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave_with(error: CecError) -> int:
    complain(error)
    return error.exit_code


def _all_leave_with(error: CecError) -> int:
    def fail(_: object) -> int:
        raise error

    return run_together(fail)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(prog="cec-mpi", description=cec_mpi.__doc__.split("\n")[0])
    parser.add_argument("--version", action="version", version=f"cec_mpi {cec_mpi.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_add_encode, _add_info, _add_verify, _add_plan, _add_run, _add_doctor):
        add(commands)
    return parser


def _add_encode(commands: Any) -> None:
    p = commands.add_parser("encode", help="encode a matrix on disk into a store of coded shards")
    p.add_argument("source", metavar="X", help="the matrix, a two-dimensional .npy file")
    p.add_argument("store", metavar="STORE", help="the directory to make")
    p.add_argument(
        "--machines", type=values.positive, required=True, metavar="N", help="shards to make"
    )
    p.add_argument(
        "--recovery",
        type=values.positive,
        required=True,
        metavar="L",
        help="any L of them give X back",
    )
    p.add_argument(
        "--code",
        default="auto",
        choices=["auto", "fourier", "orthonormal", "gaussian", "chebyshev", "cauchy"],
        help="code family (default: auto, the best conditioned)",
    )
    p.add_argument("--systematic", action="store_true", help="the first L shards are rows of X")
    p.add_argument("--seed", type=values.whole, default=0, help="of the random families")
    p.add_argument("--dtype", choices=["float32", "float64"], help="of the shards")
    p.set_defaults(command=_encode)


def _encode(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import encode

    manifest = encode(
        arguments.source,
        arguments.store,
        arguments.machines,
        arguments.recovery,
        code=arguments.code,
        systematic=arguments.systematic,
        seed=arguments.seed,
        dtype=arguments.dtype,
    )
    print(f"{arguments.store}: {_described(manifest)}")
    return 0


def _described(manifest: Any) -> str:
    code = manifest.code
    return (
        f"{manifest.rows} x {manifest.columns} {manifest.dtype} on {code.machines} machines, any "
        f"{code.recovery} of them enough; {manifest.rows_per_shard} rows per shard; "
        f"{'systematic ' if code.systematic else ''}{code.family} code, condition number "
        f"{code.conditioning.median:.1f} (worst {code.conditioning.worst:.1f})"
    )


def _add_info(commands: Any) -> None:
    p = commands.add_parser("info", help="say what a store holds")
    p.add_argument("store", metavar="STORE")
    p.set_defaults(command=_info)


def _info(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import open_store

    store = open_store(arguments.store)
    print(f"{arguments.store}: {_described(store.manifest)}")
    measured = store.manifest.code.conditioning
    which = "all" if measured.complete else "a sample of"
    print(f"condition numbers: measured on {which} {measured.measured} sets of machines")
    print(f"shards: {sum(shard.bytes for shard in store.manifest.shards)} bytes in all")
    store.check_files()
    return 0


def _add_verify(commands: Any) -> None:
    p = commands.add_parser("verify", help="read every shard of a store and check its sum")
    p.add_argument("store", metavar="STORE")
    p.set_defaults(command=_verify)


def _verify(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import open_store

    store = open_store(arguments.store)
    damaged = []
    for file, problem in store.verify():
        print(f"{file}: {problem or 'good'}", flush=True)
        if problem:
            damaged.append(file)
    if damaged:
        total = len(store.manifest.shards)
        raise DamagedStoreError(
            f"{arguments.store}: {len(damaged)} of {total} shards are damaged: {', '.join(damaged)}"
        )
    return 0


def _add_plan(commands: Any) -> None:
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


def _add_run(commands: Any) -> None:
    p = commands.add_parser(
        "run",
        help="compute with a store, under mpirun with N + 1 ranks",
        description="Compute with a store: mpirun -n N+1 cec-mpi run STORE --out DIR ...",
    )
    p.add_argument("store", metavar="STORE")
    p.add_argument("--out", type=values.path, required=True, metavar="DIR", help="for the results")
    p.add_argument("--task", default="matvec", help="matvec, power, or my_module:function")
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
    who.add_argument("--repeat", action="store_true", help="start the availability file again")
    who.add_argument("--tick", type=values.number, metavar="SECONDS", help="wall-clock ticks")
    who.add_argument("--wait", action="store_true", help="wait while too few are available")
    who.add_argument(
        "--machines", type=values.machines, metavar="LIST", help="start only these, as 1,2,5"
    )
    how = p.add_argument_group("how it is shared out")
    how.add_argument("--speeds", type=values.speeds, metavar="LIST", help="relative, as 2,2,3")
    how.add_argument("--scheme", choices=["heterogeneous", "cyclic"], default="heterogeneous")
    how.add_argument("--threads", type=values.positive, metavar="K", help="BLAS threads per rank")
    how.add_argument("--serial", action="store_true", help="all machines in one process, no MPI")
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
    p.add_argument("--overwrite", action="store_true", help="replace the results in DIR")
    p.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> int:
    from cec_mpi.job import run_parallel, run_serial

    launcher = detect_launcher()
    if arguments.serial:
        if launcher is not None and launcher.size > 1:
            raise InputError(f"--serial: {launcher.name} started {launcher.size} processes")
        return run_serial(arguments)
    if launcher is None:
        raise InputError(
            "run is started by an MPI launcher: mpirun -n N+1 cec-mpi run ... "
            "(or --serial for all machines in one process)"
        )
    return run_together(lambda comm: run_parallel(comm, arguments))


def _add_doctor(commands: Any) -> None:
    p = commands.add_parser("doctor", help="check that MPI, ranks, cores and threads fit together")
    p.set_defaults(command=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from cec_mpi.doctor import examine

    return run_together(examine)
