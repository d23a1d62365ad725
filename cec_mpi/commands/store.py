"""Commands on stores: encode, info, verify, repair, decode, add-machine, stage, bench."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cec_mpi import values
from cec_mpi.errors import DamagedStoreError
from cec_mpi.progress import transfer
from cec_mpi.runtime.launch import detect_launcher, run_together

if TYPE_CHECKING:
    from cec_mpi.store.manifest import Manifest
    from cec_mpi.store.work import Runner

__all__ = [
    "add_add_machine",
    "add_bench",
    "add_decode",
    "add_encode",
    "add_info",
    "add_repair",
    "add_stage",
    "add_verify",
]


def _with_runner(doing: str, body: Callable[[Runner], int]) -> int:
    """Do `body` with the threads of this process, or on rank 0 with those of all ranks."""
    launcher = detect_launcher()
    if launcher is None or launcher.size == 1:
        from cec_mpi.store.work import LocalRunner

        with transfer(doing) as watch:
            return body(LocalRunner(watch))

    def together(comm: Any) -> int:
        from cec_mpi.runtime.parallel import run_shared

        with transfer(doing if comm.rank == 0 else "") as watch:
            return run_shared(comm, body, watch)

    return run_together(together)


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
    _add_memory(p)
    p.set_defaults(command=_encode)


def _add_memory(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--memory",
        type=values.size,
        default=values.size("512M"),
        metavar="SIZE",
        help="the most that each process takes above a bare Python (default: 512M)",
    )


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
        print(f"{arguments.store}: {_described(manifest)}")
        return 0

    return _with_runner("encoding", body)


def _described(manifest: Manifest) -> str:
    code = manifest.code
    return (
        f"{manifest.rows} x {manifest.columns} {manifest.dtype} on {code.machines} machines, any "
        f"{code.recovery} of them enough; {manifest.rows_per_shard} rows per shard; "
        f"{'systematic ' if code.systematic else ''}{code.family} code, condition number "
        f"{code.conditioning.median:.1f} (worst {code.conditioning.worst:.1f})"
    )


def add_info(commands: Any) -> None:
    """``cec-mpi info``."""
    p = commands.add_parser("info", help="say what a store holds")
    p.add_argument("store", metavar="STORE")
    p.set_defaults(command=_info)


def _info(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import open_store

    store = open_store(arguments.store)
    manifest = store.manifest
    print(f"{arguments.store}: {_described(manifest)}")
    measured = manifest.code.conditioning
    which = "all" if measured.complete else "a sample of"
    print(f"condition numbers: measured on {which} {measured.measured} sets of machines")
    grid = manifest.grid
    print(
        f"shards: {sum(shard.bytes for shard in manifest.shards)} bytes in all; each in "
        f"{grid.count} blocks of {grid.block_rows} x {grid.block_columns} with a checksum"
    )
    for shard in manifest.shards:
        for rows in shard.rebuilt:
            print(
                f"{shard.file}: rows {rows.start}..{rows.stop - 1} were computed from other "
                f"shards, error at most {rows.error_bound:.1e} of the largest entry of X there"
            )
    store.check_files()
    return 0


def add_verify(commands: Any) -> None:
    """``cec-mpi verify``."""
    p = commands.add_parser(
        "verify",
        help="read every shard of a store and check every block",
        description="Read all of a store and check it; under mpirun all ranks share the work.",
    )
    p.add_argument("store", metavar="STORE")
    p.set_defaults(command=_verify)


def _verify(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import open_store, verify

    def body(runner: Runner) -> int:
        condition = verify(arguments.store, runner)
        shards = open_store(arguments.store).manifest.shards
        problems = {
            shard.file: problem for shard, problem in zip(shards, condition.problems, strict=True)
        }
        for file, problem in problems.items():
            print(f"{file}: {problem or 'good'}")
        for file, problem in condition.other_problems.items():
            print(f"{file}: {problem}")
        damaged = [file for file, problem in problems.items() if problem]
        if damaged:
            raise DamagedStoreError(
                f"{arguments.store}: {len(damaged)} of {len(shards)} shards are damaged: "
                f"{', '.join(damaged)}"
            )
        if condition.other_problems:
            raise DamagedStoreError(
                f"{arguments.store}: all shards are good, but not "
                f"{', '.join(condition.other_problems)} (cec-mpi repair mends that)"
            )
        return 0

    return _with_runner("verifying", body)


def add_repair(commands: Any) -> None:
    """``cec-mpi repair``."""
    p = commands.add_parser(
        "repair",
        help="rebuild the damaged and missing blocks of a store from good ones",
        description="Rebuild what is damaged from any L good shards, and compare all where more "
        "are good; under mpirun all ranks share the work.",
    )
    p.add_argument("store", metavar="STORE")
    p.add_argument(
        "--machine",
        type=values.positive,
        metavar="n",
        help="rebuild only this shard, and blame it where shards disagree",
    )
    _add_memory(p)
    p.set_defaults(command=_repair)


def _repair(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import repair
    from cec_mpi.store.manifest import shard_name

    def body(runner: Runner) -> int:
        done = repair(arguments.store, arguments.machine, memory=arguments.memory, runner=runner)
        for name in done.restored:
            print(f"{name}: written again")
        for n, rows in done.rebuilt.items():
            why = " (its checksums were right, its numbers were not)" if n in done.named else ""
            print(f"{shard_name(n)}: {rows} rebuilt{why}")
        if done.rebuilt:
            print(
                f"error: at most {done.error_bound:.1e} of the largest entry of X in the same rows"
            )
        if not (done.restored or done.rebuilt or done.unsettled or done.left or done.named):
            print(f"{arguments.store}: nothing to repair")
        problems = [
            f"shards {', '.join(map(str, machines))} disagree at {rows}, and it cannot be said "
            "which is wrong (cec-mpi repair --machine n takes it to be n)"
            for machines, rows in done.unsettled.items()
        ]
        left = sorted({*done.left, *(n for n in done.named if n not in done.rebuilt)})
        if left:
            problems.append(f"shards {', '.join(map(str, left))} are damaged still")
        if problems:
            raise DamagedStoreError(f"{arguments.store}: {'; '.join(problems)}")
        return 0

    return _with_runner("repairing", body)


def add_decode(commands: Any) -> None:
    """``cec-mpi decode``."""
    p = commands.add_parser(
        "decode",
        help="get the matrix X back from a store",
        description="Decode X from any L good shards; under mpirun all ranks share the work.",
    )
    p.add_argument("store", metavar="STORE")
    p.add_argument("out", metavar="OUT.npy", type=values.path, help="the file to make")
    _add_memory(p)
    p.set_defaults(command=_decode)


def _decode(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import decode

    def body(runner: Runner) -> int:
        bound = decode(arguments.store, arguments.out, memory=arguments.memory, runner=runner)
        print(
            f"{arguments.out}: error at most {bound:.1e} of the largest entry in the same rows "
            "of the parts of X"
        )
        return 0

    return _with_runner("decoding", body)


def add_add_machine(commands: Any) -> None:
    """``cec-mpi add-machine``."""
    p = commands.add_parser(
        "add-machine",
        help="make a shard for one machine more",
        description="Make the shard of machine N + 1 from any L good shards; under mpirun all "
        "ranks share the work.",
    )
    p.add_argument("store", metavar="STORE")
    p.add_argument("--seed", type=values.whole, default=0, help="of the new row of the code")
    _add_memory(p)
    p.set_defaults(command=_add_machine)


def _add_machine(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import add_machine

    def body(runner: Runner) -> int:
        manifest = add_machine(
            arguments.store, seed=arguments.seed, memory=arguments.memory, runner=runner
        )
        print(f"{arguments.store}: {_described(manifest)}")
        return 0

    return _with_runner("adding a machine", body)


def add_stage(commands: Any) -> None:
    """``cec-mpi stage``."""
    p = commands.add_parser(
        "stage",
        help="copy each machine's shard to its own node",
        description="Copy each machine's shard to the node that it runs on, checked: mpirun -n "
        "N+1 cec-mpi stage STORE '/scratch/{host}'. Runs of the same store find the copies.",
    )
    p.add_argument("store", metavar="STORE")
    p.add_argument("directory", type=values.path, help="on each node; {host} is its name")
    p.add_argument(
        "--machines", type=values.machines, metavar="LIST", help="only these, as for run"
    )
    p.set_defaults(command=_stage)


def _stage(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from cec_mpi.runtime.staging import stage_here, stage_together
    from cec_mpi.store.staging import remember_stage

    store, pattern, machines = arguments.store, arguments.directory, arguments.machines

    def report(staged: Any) -> None:
        for host, machine, size in staged:
            print(f"machine {machine} on {host}: {f'{size} bytes' if size else 'was there'}")
        if not remember_stage(Path(store), pattern):
            print(f"{store} cannot be written: give run --staged '{pattern}'")

    launcher = detect_launcher()
    if launcher is None or launcher.size == 1:
        report(stage_here(store, pattern, machines))
        return 0

    def together(comm: Any) -> int:
        staged = stage_together(comm, store, pattern, machines)
        if comm.rank == 0:
            report(staged)
        return 0

    return run_together(together)


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
    _add_memory(p)
    p.set_defaults(command=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    from cec_mpi.bench import bench_encode, bench_verify

    bench = bench_encode if arguments.what == "encode" else bench_verify
    figures = bench(
        arguments.directory,
        rows=arguments.rows,
        columns=arguments.columns,
        machines=arguments.machines,
        recovery=arguments.recovery,
        dtype=arguments.dtype,
        memory=arguments.memory,
        repeats=arguments.repeats,
        seed=arguments.seed,
    )
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):32} {value:.6g}")
    return 0
