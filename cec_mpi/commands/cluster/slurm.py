"""The command slurm."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cec_mpi.cluster.slurm import LAUNCHERS, batch_script
from cec_mpi.commands.cluster.elastic import write_elastic
from cec_mpi.commands.cluster.placed import placement_of
from cec_mpi.commands.cluster.words import pairs, parsed, without_out
from cec_mpi.errors import CecError, InputError
from cec_mpi.files.regular import read_given
from cec_mpi.options import values
from cec_mpi.options.elastic import Elastic, if_removed
from cec_mpi.options.option import add_flag, from_flags
from cec_mpi.terminal import put


def add_slurm(commands: Any) -> None:
    """``cec-mpi slurm``."""
    p = commands.add_parser(
        "slurm",
        help="write a batch script of Slurm that runs cec-mpi run",
        usage="%(prog)s [OPTIONS] [run STORE --out DIR ...]",
        description="Write a batch script of Slurm to standard output. Without a run it takes "
        "STORE, DIR and options of cec-mpi run as its arguments. With --elastic, write two "
        "scripts into this directory.",
    )
    p.hint = lambda option, given: if_removed(option)
    add_flag(
        p,
        "--launcher",
        "mpirun, mpiexec.hydra (of Intel MPI), or srun with pmix or pmi2",
        choices=LAUNCHERS,
        default="mpirun",
    )
    add_flag(
        p,
        "--elastic N",
        "write two scripts, NAME-master.sbatch and NAME-machines.sbatch: a run with --accept, and "
        "N jobs that join it",
        values.positive,
    )
    add_flag(
        p,
        "--ntasks RANKS",
        "by default a master and the machines of the store; in an elastic run more are spares",
        values.positive,
    )
    add_flag(p, "--job-name NAME", "as squeue shows it", default="cec-mpi")
    add_flag(p, "--time TIME", "as 30 (minutes), 1:30:00 or 1-12:00:00")
    add_flag(p, "--nodes K", "by default as Slurm has it", values.positive)
    add_flag(p, "--cpus-per-task K", "CPUs for each rank", values.positive, default=1)
    add_flag(p, "--partition NAME", "that the job is for")
    add_flag(p, "--account NAME", "that the job is charged to")
    add_flag(
        p, "--sbatch KEY=VALUE", "any other option of sbatch, as mem=4G or exclusive", default=()
    )
    add_flag(
        p,
        "--master-sbatch KEY=VALUE",
        "with --elastic: an option of sbatch for the master alone, as partition=long",
        default=(),
    )
    add_flag(p, "--setup LINE", "of shell, before the run, as 'module load openmpi'", default=())
    add_flag(p, "--array FILE", "a job array: the options of one of its tasks on each line")
    add_flag(
        p,
        "--preemptible",
        "on a warning write a checkpoint and have the job requeued to go on",
        default=False,
    )
    add_flag(
        p, "--warning SECONDS", "before the end of the job's time, by default 120", values.positive
    )
    add_flag(p, "--restarts K", "at most, by default 100", values.positive)
    p.add_argument("run", nargs=argparse.REMAINDER, help="what the job is to do")
    p.set_defaults(command=partial(_slurm, run_parser=commands.choices["run"]))


def _slurm(arguments: argparse.Namespace, run_parser: argparse.ArgumentParser) -> int:
    if not (arguments.preemptible or arguments.elastic):
        for name in ("warning", "restarts"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name}: expected --preemptible with it, or --elastic")
    words = arguments.run
    if words and words[0] != "run":
        raise InputError(f"{words[0]!r}: expected run STORE --out DIR ... after the options")
    if arguments.elastic:
        return write_elastic(arguments, words[1:], run_parser)
    if arguments.master_sbatch:
        raise InputError("--master-sbatch: expected --elastic with it")
    parameters = _parameters(arguments.array) if arguments.array is not None else []
    runs = [
        parsed(run_parser, words[1:] if words else ["STORE", "--out", "DIR"], line, where)
        for where, line in parameters or [("", [])]
    ]
    _check(arguments, runs)
    text = batch_script(
        without_out(words[1:]),
        runs[0].out if words else None,
        launcher=arguments.launcher,
        tasks=arguments.ntasks or _ranks(runs, bool(words)),
        job_name=arguments.job_name,
        time=arguments.time,
        nodes=arguments.nodes,
        cpus_per_task=arguments.cpus_per_task,
        partition=arguments.partition,
        account=arguments.account,
        sbatch=pairs("--sbatch", arguments.sbatch),
        setup=arguments.setup,
        parameters=[line for _, line in parameters],
        preemptible=arguments.preemptible,
        warning=arguments.warning or 120,
        restarts=arguments.restarts or 100,
        continues=any(map(_is_elastic, runs)),
    )
    put(text.removesuffix("\n"))
    return 0


def _parameters(path: str) -> list[tuple[str, list[str]]]:
    """The words of each line of a file, and where they stand."""
    found = []
    try:
        lines = read_given(Path(path)).decode().splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {error}; expected lines of options") from None
    for number, line in enumerate(lines, start=1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if words:
            found.append((f"{path}, line {number}: ", words))
    if not found:
        raise InputError(f"{path} has no line of options: expected one for each task of the array")
    return found


def _check(arguments: argparse.Namespace, runs: Sequence[argparse.Namespace]) -> None:
    for run in runs:
        if run.serial:
            raise InputError("--serial: expected a run of several ranks in a job of Slurm")
        if arguments.preemptible and run.overwrite:
            raise InputError("--overwrite: a --preemptible job would begin anew at each restart")


def _is_elastic(run: argparse.Namespace) -> bool:
    return from_flags(Elastic, run).is_elastic


def _ranks(runs: Sequence[argparse.Namespace], are_known: bool) -> int:
    """The ranks that runs need, one of the master, as their stores say."""
    if not are_known:
        raise InputError("--ntasks: expected it where the script takes the store as its argument")
    try:
        ranks: set[int] = {1 + _machines(run) for run in runs}
    except CecError as error:
        raise type(error)(f"{error}; with --ntasks RANKS the store is not looked at") from None
    if len(ranks) > 1:
        raise InputError(f"--array: its tasks need {sorted(ranks)} ranks: expected --ntasks RANKS")
    return ranks.pop()


def _machines(run: argparse.Namespace) -> int:
    """How many machines a run starts."""
    return len(run.machines) if run.machines else placement_of(run)[0].machines
