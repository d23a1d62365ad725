"""Check and change stores: verify, repair, decode, add-machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cec_mpi.cli.commands.parser import Parser
from cec_mpi.cli.commands.shared import add_memory, set_store_command, share_work
from cec_mpi.errors import DamagedStoreError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import add_flag, add_option
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.text import plural, printable
from cec_mpi.text.terminal import print_note, print_result

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import Manifest
    from cec_mpi.store.work import Runner


def add_verify(parser: Parser) -> None:
    """``cec-mpi verify``."""
    set_store_command(parser, _verify)
    parser.description = (
        "Read all shards of a store and check every block. Under mpirun all ranks share the work."
    )


def _verify(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import verify

    def body(runner: Runner) -> int:
        condition = verify(arguments.store, runner)
        shards = condition.manifest.shards
        problems = {
            shard.file: problem for shard, problem in zip(shards, condition.problems, strict=True)
        }
        for file, problem in problems.items():
            if problem:
                print_result(printable(f"{file}: {problem}"))
            else:
                print_note(f"{file}: good")
        for file, problem in condition.other_problems.items():
            print_result(printable(f"{file}: {problem}"))
        damaged = [file for file, problem in problems.items() if problem]
        if damaged:
            verb = "is" if len(damaged) == 1 else "are"
            raise DamagedStoreError(
                f"{arguments.store}: {len(damaged)} of {plural(len(shards), 'shard')} {verb} "
                f"damaged: {', '.join(damaged)}; cec-mpi repair rebuilds what it can from the "
                "others"
            )
        if condition.other_problems:
            remedy = "cec-mpi repair restores them"
            if condition.lost:
                lost = " and ".join(condition.lost)
                remedy = (
                    f"{lost} cannot be restored: copy one of them from a backup, or encode X again"
                )
            raise DamagedStoreError(
                f"{arguments.store}: all shards are intact, but other files are damaged: "
                f"{', '.join(condition.other_problems)} ({remedy})"
            )
        return 0

    return share_work("verifying", body, arguments)


def add_repair(parser: Parser) -> None:
    """``cec-mpi repair``."""
    set_store_command(parser, _repair)
    parser.description = (
        "Rebuild damaged blocks from any L good shards, or blocks of a sparse X from another copy. "
        "If no block is damaged, compare the shards with each other. Under mpirun all ranks share "
        "the work."
    )
    add_flag(
        parser,
        "--machine n",
        "rebuild only this shard; if shards disagree, assume that this one is wrong",
        values.positive,
    )
    add_memory(parser)


def _repair(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import open_store, repair

    def body(runner: Runner) -> int:
        result = repair(arguments.store, arguments.machine, memory=arguments.memory, runner=runner)
        manifest = open_store(arguments.store).manifest

        def shard_name(machine: int) -> str:
            return manifest.shards[machine - 1].file

        for name in result.restored:
            print_note(f"{name}: restored")
        for n, kind in result.replaced.items():
            print_note(
                f"{shard_name(n)}: replaced {kind} with a regular file (its target is unchanged)"
            )
        for n, rows in result.rebuilt.items():
            reason = " (wrong numbers with valid checksums)" if n in result.faulty else ""
            print_note(f"{shard_name(n)}: {rows} rebuilt{reason}")
        if result.error_bound:
            print_note(
                f"the error of rebuilt numbers is {_bound_text(result.error_bound, manifest)}"
            )
        findings = (
            result.restored,
            result.lost,
            result.rebuilt,
            result.unresolved,
            result.still_damaged,
            result.faulty,
        )
        if not any(findings):
            print_note(f"{arguments.store}: nothing to repair")
        problems = list(result.unresolved)
        still_damaged = sorted(
            {*result.still_damaged, *(n for n in result.faulty if n not in result.rebuilt)}
        )
        if still_damaged:
            problems.append(f"still damaged: {', '.join(map(shard_name, still_damaged))}")
        if result.lost:
            problems.append(
                f"{' and '.join(result.lost)} cannot be restored: copy one of them from a "
                "backup, or encode X again"
            )
        if problems:
            raise DamagedStoreError(f"{arguments.store}: {'; '.join(problems)}")
        return 0

    return share_work("repairing", body, arguments)


def add_decode(parser: Parser) -> None:
    """``cec-mpi decode``."""
    set_store_command(parser, _decode)
    parser.description = (
        "Decode X from any L good shards, or a sparse X from its copies. Under mpirun all ranks "
        "share the work."
    )
    parser.add_argument(
        "out",
        metavar="OUT",
        type=values.path,
        help="file to create: .npy, .csv, .tsv, file.h5::/dataset or array.zarr, or .npz for a "
        "sparse X",
    )
    add_flag(
        parser,
        "--delimiter CHAR",
        "delimiter of a text table: one character, or tab, semicolon, space (default: a comma, or "
        "a tab in .tsv)",
    )
    add_memory(parser)


def _decode(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import decode, open_store

    def body(runner: Runner) -> int:
        bound = decode(
            arguments.store,
            arguments.out,
            delimiter=arguments.delimiter,
            memory=arguments.memory,
            runner=runner,
        )
        manifest = open_store(arguments.store).manifest
        content = "X as it was stored"
        if bound:
            content = f"X, whose error is {_bound_text(bound, manifest)}"
        elif manifest.rounded:
            content = f"X, rounded to {manifest.dtype} when it was encoded"
        print_note(f"{arguments.out}: {content}")
        return 0

    return share_work("decoding", body, arguments)


def _bound_text(bound: float, manifest: Manifest) -> str:
    """Return an error bound as text, with its reference value."""
    if manifest.row_exponents:
        return f"about {bound:.1e}, relative to the largest entry of each row"
    return f"at most {bound:.1e} times the largest entry of X"


def add_add_machine(parser: Parser) -> None:
    """``cec-mpi add-machine``."""
    set_store_command(parser, _add_machine)
    parser.description = (
        "Compute the shard of machine N + 1 from any L good shards. Under mpirun all ranks share "
        "the work."
    )
    add_option(parser, SessionOptions, "seed", text="seed of the new row of the code (default: 0)")
    add_memory(parser)


def _add_machine(arguments: argparse.Namespace) -> int:
    from cec_mpi.store import add_machine
    from cec_mpi.store.kinds import make_facts

    def body(runner: Runner) -> int:
        manifest = add_machine(
            arguments.store, seed=arguments.seed, memory=arguments.memory, runner=runner
        )
        print_note(f"{arguments.store}: {make_facts(manifest).summary()}")
        return 0

    return share_work("adding a machine", body, arguments)
