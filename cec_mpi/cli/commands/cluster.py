"""Write batch scripts for clusters: slurm."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cec_mpi.cli.batch.slurm import LAUNCHERS, batch_script
from cec_mpi.cli.commands.parser import Parser
from cec_mpi.cli.commands.run import add_run
from cec_mpi.cli.run.options import parse_run_options
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.elastic import CONNECTION_FILE, ElasticOptions
from cec_mpi.runtime.options.option import add_flag, from_flags
from cec_mpi.store.files.regular import read_file_or_pipe
from cec_mpi.text.terminal import print_result


def add_slurm(parser: Parser) -> None:
    """``cec-mpi slurm``."""
    parser.usage = "%(prog)s [OPTIONS] run STORE --out DIR ..."
    parser.description = (
        "Write a Slurm batch script for this run to standard output. With --elastic or "
        "--keep, write two scripts into the current directory; --partition, --cpus-per-task and "
        "--sbatch then apply only to the machines."
    )
    add_flag(
        parser,
        "--launcher",
        "program that starts the ranks of a lockstep run: mpirun, hydra (mpiexec.hydra of Intel "
        "MPI), or pmix or pmi2 (srun --mpi=...) (default: mpirun)",
        choices=LAUNCHERS,
    )
    add_flag(
        parser,
        "--elastic N",
        "write two scripts, NAME-master.sbatch and NAME-machines.sbatch: an elastic run, and N "
        "jobs of one machine each that join it",
        values.positive,
    )
    add_flag(
        parser,
        "--keep N",
        "write the same scripts, but the job of the master submits the N machines, and replaces "
        "those that are lost or have expired",
        values.positive,
    )
    add_flag(
        parser,
        "--ntasks RANKS",
        "number of ranks (default: one for the master and one for each machine of the store, or of "
        "--machines); in an elastic run additional ranks are spares",
        values.positive,
    )
    add_flag(parser, "--job-name NAME", "name of the job (default: cec-mpi)", default="cec-mpi")
    add_flag(
        parser, "--time TIME", "time limit of the job, such as 30 (minutes), 1:30:00 or 1-12:00:00"
    )
    add_flag(parser, "--nodes K", "number of nodes (default: Slurm decides)", values.positive)
    add_flag(
        parser, "--cpus-per-task K", "CPUs for each rank (default: 1)", values.positive, default=1
    )
    add_flag(parser, "--partition NAME", "partition of the job")
    add_flag(parser, "--account NAME", "account of the job")
    add_flag(
        parser,
        "--sbatch KEY=VALUE",
        "any other option of sbatch, such as mem=4G or exclusive; may be repeated",
        default=(),
    )
    add_flag(
        parser,
        "--setup LINE",
        "shell command before the run, such as 'module load openmpi'; may be repeated",
        default=(),
    )
    parser.add_argument(
        "run", nargs=argparse.REMAINDER, help="the run of the job: run STORE --out DIR ..."
    )
    parser.set_defaults(command=_slurm)


def _slurm(arguments: argparse.Namespace) -> int:
    words = arguments.run
    if words[:1] != ["run"]:
        found = repr(words[0]) if words else "nothing"
        raise InputError(f"found {found} after the options, expected run STORE --out DIR ...")
    run_arguments = _parse_run(words[1:])
    if run_arguments.serial:
        raise InputError("--serial cannot be used in a Slurm job, which runs several processes")
    if run_arguments.overwrite:
        raise InputError(
            "--overwrite would discard the progress when the job is queued again: remove DIR first"
        )
    options = {
        "job-name": arguments.job_name,
        "ntasks": arguments.ntasks,
        "nodes": arguments.nodes,
        "cpus-per-task": arguments.cpus_per_task,
        "time": arguments.time,
        "partition": arguments.partition,
        "account": arguments.account,
    }
    run_words = _remove_out(words[1:])
    if arguments.elastic and arguments.keep:
        raise InputError("--elastic and --keep cannot be combined: expected one of them")
    if arguments.elastic or arguments.keep:
        return _write_elastic(arguments, run_arguments, run_words, options)
    if run_arguments.local is not None and arguments.ntasks != 1:
        raise InputError(
            "--local cannot be combined with several ranks, because the ranks are the machines: "
            "remove it, or use --ntasks 1"
        )
    # A job of one process starts its machines itself, without MPI.
    is_elastic = arguments.ntasks == 1 or from_flags(ElasticOptions, run_arguments).is_elastic
    if is_elastic and arguments.launcher:
        raise InputError("--launcher: expected a lockstep run (srun starts an elastic run)")
    text = batch_script(
        "elastic" if is_elastic else "lockstep",
        {**options, "ntasks": arguments.ntasks or _count_ranks(run_arguments)},
        _parse_sbatch(arguments.sbatch),
        run_words=run_words,
        out=run_arguments.out,
        launcher=arguments.launcher or "mpirun",
        setup=arguments.setup,
    )
    print_result(text.removesuffix("\n"))
    return 0


def _write_elastic(
    arguments: argparse.Namespace,
    run_arguments: argparse.Namespace,
    run_words: Sequence[str],
    options: dict[str, Any],
) -> int:
    """Write the scripts of the master and of machines into the current directory."""
    from cec_mpi.store.devices import check_device

    flag = "--keep" if arguments.keep else "--elastic"
    for name in ("launcher", "ntasks", "nodes"):
        if getattr(arguments, name):
            raise InputError(
                f"--{name} cannot be combined with {flag}, where each machine is a job of one "
                "process"
            )
    if run_arguments.local is not None:
        raise InputError(
            f"--local cannot be combined with {flag}, whose machines are jobs of their own"
        )
    check_device(run_arguments.device)  # refuses a list, because each job is one machine
    name = arguments.job_name
    if "/" in name or name[:1] in ("", "-"):
        raise InputError(f"--job-name {name!r}: expected a valid file name")
    connection_file = run_arguments.accept or f"{run_arguments.out.rstrip('/')}/{CONNECTION_FILE}"
    replace(from_flags(ElasticOptions, run_arguments), accept=connection_file).check_listening()
    accept_words = [] if run_arguments.accept else ["--accept", connection_file]
    master_options = {"ntasks": 1, "cpus-per-task": 1, "partition": None}
    machine_options = {"ntasks": 1, "array": f"1-{arguments.keep or arguments.elastic}"}
    machines_script = f"{name}-machines.sbatch"
    scripts = {
        f"{name}-master.sbatch": batch_script(
            "elastic",
            {**options, "job-name": f"{name}-master", **master_options},
            run_words=[*run_words, *accept_words],
            out=run_arguments.out,
            setup=arguments.setup,
            keep=arguments.keep or 0,
            machines_script=machines_script,
        ),
        machines_script: batch_script(
            "machines",
            {**options, "job-name": f"{name}-machines", **machine_options},
            _parse_sbatch(arguments.sbatch),
            connection_file=connection_file,
            join_words=["--device", run_arguments.device] if run_arguments.device != "cpu" else [],
            setup=arguments.setup,
        ),
    }
    for path, text in scripts.items():
        # Do not replace a script that the user has edited.
        if Path(path).exists() and read_file_or_pipe(Path(path)) != text.encode():
            raise InputError(
                f"{path} exists with other content: remove it, or choose another --job-name"
            )
    for path, text in scripts.items():
        Path(path).write_text(text, encoding="utf-8")
    master, machines = map(shlex.quote, scripts)
    print_result(
        f"sbatch {master}" if arguments.keep else f"sbatch {machines} $(sbatch --parsable {master})"
    )
    return 0


def _parse_run(words: Sequence[str]) -> argparse.Namespace:
    """Parse words as ``cec-mpi run`` does, to raise its errors before the job starts."""
    from cec_mpi.cli.run.task_arguments import parse_task_options
    from cec_mpi.tasks import find_task

    parser = Parser(prog="cec-mpi run")
    add_run(parser)
    arguments = parser.parse_args(words)
    run = parse_run_options(arguments)
    if ":" not in run.task:  # a user's task may exist only on the cluster
        parse_task_options(find_task(run.task), run, 0)
    return arguments


def _remove_out(words: Sequence[str]) -> list[str]:
    """Return the words without --out and its value."""
    remaining: list[str] = []
    is_value = False
    for word in words:
        if not (is_value or word == "--out" or word.startswith("--out=")):
            remaining.append(word)
        is_value = word == "--out" and not is_value
    return remaining


def _parse_sbatch(texts: Sequence[str]) -> dict[str, str | None]:
    """Parse options of sbatch of the form KEY=VALUE or KEY."""
    parsed: dict[str, str | None] = {}
    for text in texts:
        key, equals, value = text.removeprefix("--").partition("=")
        if key in parsed:
            raise InputError(f"--sbatch {key} is repeated: expected it once")
        if key == "array":
            raise InputError("--sbatch array: submit the script once for each run instead")
        parsed[key] = value if equals else None
    return parsed


def _count_ranks(run_arguments: argparse.Namespace) -> int:
    """Return the number of ranks of a run: its machines, and one for the master."""
    from cec_mpi.store.files.paths import expand_host
    from cec_mpi.store.reader import open_store

    if run_arguments.machines:
        return 1 + len(run_arguments.machines)
    try:
        return 1 + open_store(expand_host(run_arguments.store)).manifest.code.machines
    except CecError as error:
        raise type(error)(f"{error}; use --ntasks RANKS if the store cannot be read here") from None
