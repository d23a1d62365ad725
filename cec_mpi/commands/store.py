"""Commands on stores that are there: info, verify, repair, decode, add-machine, stage."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from cec_mpi import values
from cec_mpi.commands.shared import add_memory, described, with_runner
from cec_mpi.errors import DamagedStoreError
from cec_mpi.runtime.launchers import detect_launcher
from cec_mpi.runtime.together import run_together

if TYPE_CHECKING:
    from cec_mpi.store.manifest import Manifest
    from cec_mpi.store.work import Runner

__all__ = [
    "add_add_machine",
    "add_decode",
    "add_info",
    "add_repair",
    "add_stage",
    "add_verify",
]


def add_info(commands: Any) -> None:
    """``cec-mpi info``."""
    p = commands.add_parser("info", help="say what a store holds")
    p.add_argument("store", metavar="STORE")
    p.set_defaults(command=_info)


def _info(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import open_store

    store = open_store(arguments.store)
    manifest = store.manifest
    print(f"{arguments.store}: {described(manifest)}")
    measured = manifest.code.conditioning
    which = "all" if measured.complete else "a sample of"
    print(f"condition numbers: measured on {which} {measured.measured} sets of machines")
    print(_wrong_answers(manifest), end="")
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


def _wrong_answers(manifest: Manifest) -> str:
    """How small an error in an answer is seen; empty where that was not measured."""
    import numpy as np

    found, recovery = manifest.sensitivity, manifest.code.recovery
    if found is None:
        return ""
    if manifest.code.machines == recovery:
        return "wrong answers: not seen, since all machines are needed\n"
    some = "" if found.complete else f"; a sample of {found.measured} sets was measured"
    if found.detectable == math.inf:
        return f"wrong answers: not seen by some {recovery + 1} machines{some}\n"
    eps = float(np.finfo(manifest.dtype).eps)
    who = f"; any {recovery + 2} say whose it is" if found.locatable < math.inf else ""
    return (
        f"wrong answers: any {recovery + 1} machines see an error of {found.detectable * eps:.1e} "
        f"of what the terms of a row add up to (half of all sets {found.median * eps:.1e}){who}"
        f"{some}\n"
    )


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
    from cec_mpi.store import verify

    def body(runner: Runner) -> int:
        condition = verify(arguments.store, runner)
        shards = condition.manifest.shards
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

    return with_runner("verifying", body)


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
    add_memory(p)
    p.set_defaults(command=_repair)


def _repair(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import repair
    from cec_mpi.store.manifest import shard_name

    def body(runner: Runner) -> int:
        done = repair(arguments.store, arguments.machine, memory=arguments.memory, runner=runner)
        for name in done.restored:
            print(f"{name}: restored")
        for n, rows in done.rebuilt.items():
            why = " (its checksums were right, its numbers were not)" if n in done.named else ""
            print(f"{shard_name(n)}: {rows} rebuilt{why}")
        if done.rebuilt:
            print(
                f"error: at most {done.error_bound:.1e} of the largest entry of X at the same "
                "place of its parts"
            )
        if not (done.restored or done.rebuilt or done.unsettled or done.left or done.named):
            print(f"{arguments.store}: nothing to repair")
        problems = list(done.unsettled)
        left = sorted({*done.left, *(n for n in done.named if n not in done.rebuilt)})
        if left:
            problems.append(f"still damaged: {', '.join(map(shard_name, left))}")
        if problems:
            raise DamagedStoreError(f"{arguments.store}: {'; '.join(problems)}")
        return 0

    return with_runner("repairing", body)


def add_decode(commands: Any) -> None:
    """``cec-mpi decode``."""
    p = commands.add_parser(
        "decode",
        help="get the matrix X back from a store",
        description="Decode X from any L good shards; under mpirun all ranks share the work.",
    )
    p.add_argument("store", metavar="STORE")
    p.add_argument("out", metavar="OUT.npy", type=values.path, help="the file to make")
    add_memory(p)
    p.set_defaults(command=_decode)


def _decode(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import decode

    def body(runner: Runner) -> int:
        bound = decode(arguments.store, arguments.out, memory=arguments.memory, runner=runner)
        print(
            f"{arguments.out}: error at most {bound:.1e} of the largest entry at the same "
            "place of the parts of X"
        )
        return 0

    return with_runner("decoding", body)


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
    add_memory(p)
    p.set_defaults(command=_add_machine)


def _add_machine(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import add_machine

    def body(runner: Runner) -> int:
        manifest = add_machine(
            arguments.store, seed=arguments.seed, memory=arguments.memory, runner=runner
        )
        print(f"{arguments.store}: {described(manifest)}")
        return 0

    return with_runner("adding a machine", body)


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
