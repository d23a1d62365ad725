"""How fast it is, beside limits and peers: bench, with a command for each benchmark."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from cec_mpi.bench.benchmark import Benchmark
from cec_mpi.bench.figures import Figure, Result, compare, only_in_one, read_result
from cec_mpi.bench.ranks import RankBenchmark
from cec_mpi.commands.parser import Parser, Processes
from cec_mpi.commands.shared import add_json
from cec_mpi.errors import InputError
from cec_mpi.options.elastic import Elastic
from cec_mpi.options.option import add_flag, add_option, from_flags
from cec_mpi.processes.launcher import detect_launcher
from cec_mpi.processes.together import on_master, run_together
from cec_mpi.terminal import put
from cec_mpi.text import listed

if TYPE_CHECKING:
    from mpi4py import MPI

_BENCHMARKS = {  # each with its class, in a module of `bench`
    "kernel": "products.kernel.Kernel",
    "block": "products.block.Block",
    "adjoint": "products.block.Adjoint",
    "decode": "products.decode.Decode",
    "step": "steps.step.Step",
    "scale": "steps.scale.Scale",
    "local": "steps.local.Local",
    "event": "steps.event.Event",
    "plan": "plan.Plan",
    "start": "start.Start",
    "encode": "store.Encode",
    "verify": "store.Verify",
    "league": "league.league.League",
    "makespan": "slower.makespan.Makespan",
}


def add_bench(commands: Any) -> None:
    """``cec-mpi bench``."""
    p = commands.add_parser(
        "bench",
        help="measure how fast it is, beside limits and peers in the same run",
        description="Measure how fast it is: ratios to a limit or a peer, taken in turn in the "
        "same run on the same data, with their quartiles.",
    )
    kinds = p.add_subparsers(title="commands", metavar="WHAT", required=True)
    for what, place in _BENCHMARKS.items():
        module, _, name = place.rpartition(".")
        kind = getattr(importlib.import_module(f"cec_mpi.bench.{module}"), name)
        _add_benchmark(kinds, what, kind)
    p.commands = kinds.choices


def _add_benchmark(kinds: Any, what: str, kind: type[Benchmark]) -> None:
    p: Parser = kinds.add_parser(what, help=kind.title)
    for each in fields(kind):
        add_flag(p, dest=each.name, default=each.default, **each.metadata["shown"])
    add_json(p)
    add_flag(
        p,
        "--compare OLD.json",
        "what --json printed before: name the ratios that got worse by more than the spread of "
        "both",
    )
    if issubclass(kind, RankBenchmark):
        p.processes = Processes.STARTED
        add_option(p, Elastic, "start_timeout")
    p.set_defaults(command=_bench, kind=kind)


def _bench(arguments: argparse.Namespace) -> int:
    benchmark = from_flags(arguments.kind, arguments)
    launcher = detect_launcher()
    if isinstance(benchmark, RankBenchmark) and launcher is not None and launcher.size > 1:
        return run_together(
            lambda comm: _bench_together(comm, benchmark, arguments), arguments.start_timeout
        )
    old = _old(arguments, benchmark)
    _show(benchmark.result(), old, arguments.json)
    return 0


def _bench_together(
    comm: MPI.Intracomm, benchmark: RankBenchmark, arguments: argparse.Namespace
) -> int:
    from cec_mpi.processes.start import meet

    meet(comm)
    benchmark = replace(benchmark, ranks=comm.size)
    old = on_master(comm, lambda: _old(arguments, benchmark))
    benchmark.check(comm.size)
    figures = benchmark.measure_together(comm)
    if comm.rank == 0:
        _show(Result.now(benchmark.what, figures, asdict(benchmark)), old, arguments.json)
    return 0


def _old(arguments: argparse.Namespace, benchmark: Benchmark) -> Result | None:
    if arguments.compare is None:
        return None
    if not arguments.compare:
        raise InputError("--compare '': expected the name of a file")
    return read_result(arguments.compare, benchmark.what, asdict(benchmark))


def _show(new: Result, old: Result | None, as_json: bool) -> None:
    worse = compare(old, new) if old is not None else []
    if as_json:
        more: dict[str, Any] = {}
        if old is not None:
            more["worse"] = [{"name": each.name, "over": each.over} for _, each in worse]
            more["before"] = {"date": old.date, "machine": old.machine}
        put(new.to_json(**more))
        return
    put(new.table())
    if old is None:
        return
    put("")
    if old.machine != new.machine:
        about = ", ".join(f"{name} {value}" for name, value in old.machine.items())
        put(f"compared with figures of another computer: {about}")
    for before, after in worse:
        was = f"{_said(before)} on {old.date}"
        put(f"worse: {after.name} over {after.over}: {_said(after)}, was {was}")
    alone = sorted({name for name, *_ in only_in_one(old, new)})
    if alone:
        put(f"not compared, since only one of both has it: {listed(alone)}")
    elif not worse:
        put(f"nothing got worse by more than the spread since {old.date}")


def _said(figure: Figure) -> str:
    return f"{figure.value:.3f} ({figure.low:.3f} to {figure.high:.3f})"
