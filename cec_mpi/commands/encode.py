"""Making stores, and measuring how fast that is: encode, bench."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from cec_mpi import values
from cec_mpi.commands.shared import add_memory, described, with_runner

if TYPE_CHECKING:
    from cec_mpi.store.work import Runner

__all__ = ["add_bench", "add_encode"]


def add_encode(commands: Any) -> None:
    """``cec-mpi encode``."""
    p = commands.add_parser(
        "encode",
        help="encode a matrix on disk into a store of coded shards",
        description="Encode a matrix into a store; under mpirun all ranks share the work.",
    )
    p.add_argument(
        "source",
        metavar="X",
        help=".npy, a directory of .npy parts, file.h5::/dataset, Zarr, .csv, .tsv, .mtx, or raw "
        "binary with --shape",
    )
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
    p.add_argument("--shape", type=values.shape, metavar="Q,R", help="X is raw binary, C-ordered")
    p.add_argument(
        "--input-dtype", metavar="DTYPE", help="of raw binary, as <f4 (default: that of --dtype)"
    )
    p.add_argument("--resume", action="store_true", help="go on where an encode was interrupted")
    add_memory(p)
    p.set_defaults(command=_encode)


def _encode(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import encode

    def body(runner: Runner) -> int:
        manifest = encode(
            arguments.source,
            arguments.store,
            arguments.machines,
            arguments.recovery,
            code=arguments.code,
            systematic=arguments.systematic,
            seed=arguments.seed,
            dtype=arguments.dtype,
            shape=arguments.shape,
            input_dtype=arguments.input_dtype,
            memory=arguments.memory,
            resume=arguments.resume,
            runner=runner,
        )
        print(f"{arguments.store}: {described(manifest)}")
        return 0

    return with_runner("encoding", body)


def add_bench(commands: Any) -> None:
    """``cec-mpi bench``."""
    p = commands.add_parser(
        "bench",
        help="measure encode or verify beside what the disk and the processor can do",
    )
    p.add_argument("what", choices=["encode", "verify"])
    p.add_argument("--directory", default=".", metavar="DIR", help="on the disk to measure")
    p.add_argument("--rows", type=values.positive, default=1_000_000)
    p.add_argument("--columns", type=values.positive, default=256)
    p.add_argument("--machines", type=values.positive, default=6, metavar="N")
    p.add_argument("--recovery", type=values.positive, default=3, metavar="L")
    p.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    p.add_argument("--repeats", type=values.positive, default=3)
    p.add_argument("--seed", type=values.whole, default=0)
    p.add_argument("--json", action="store_true", help="print one JSON object")
    add_memory(p)
    p.set_defaults(command=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    from cec_mpi.bench import Bench

    bench = Bench(
        directory=arguments.directory,
        rows=arguments.rows,
        columns=arguments.columns,
        machines=arguments.machines,
        recovery=arguments.recovery,
        dtype=arguments.dtype,
        memory=arguments.memory,
        repeats=arguments.repeats,
        seed=arguments.seed,
    )
    figures = bench.encode() if arguments.what == "encode" else bench.verify()
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):32} {value:.4g}")
    return 0
