"""Commands that write files for clusters: slurm, hostfile."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cec_mpi import values
from cec_mpi.errors import CecError, InputError
from cec_mpi.hostfile import FORMATS, hostfile_text, hosts_of_job, read_host
from cec_mpi.slurm import LAUNCHERS, batch_script

__all__ = ["add_hostfile", "add_slurm"]


def add_hostfile(commands: Any) -> None:
    """``cec-mpi hostfile``."""
    p = commands.add_parser("hostfile", help="write a hostfile for mpirun")
    p.add_argument("--format", required=True, choices=FORMATS)
    p.add_argument(
        "--from-slurm", action="store_true", help="of the allocation that this process is in"
    )
    p.add_argument("hosts", nargs="*", metavar="HOST:RANKS", help="as node01:4")
    p.set_defaults(command=_hostfile)


def _hostfile(arguments: argparse.Namespace) -> int:
    if arguments.from_slurm:
        if arguments.hosts:
            raise InputError(f"--from-slurm: expected no hosts with it, found {arguments.hosts[0]}")
        hosts = hosts_of_job(os.environ)
    else:
        hosts = [read_host(text) for text in arguments.hosts]
    print(hostfile_text(arguments.format, hosts), end="")
    return 0


def add_slurm(commands: Any) -> None:
    """``cec-mpi slurm``."""
    p = commands.add_parser(
        "slurm",
        help="write a batch script of Slurm that runs cec-mpi run",
        usage="%(prog)s [OPTIONS] [run STORE --out DIR ...]",
        description="Write a batch script of Slurm to standard output. Without a run it takes "
        "STORE, DIR and options of cec-mpi run as its arguments.",
    )
    p.add_argument(
        "--launcher",
        choices=LAUNCHERS,
        default="mpirun",
        help="mpirun, mpiexec.hydra (of Intel MPI), or srun with pmix or pmi2",
    )
    p.add_argument(
        "--ntasks",
        type=values.positive,
        metavar="RANKS",
        help="by default a master, the machines of the store, and spares",
    )
    p.add_argument("--job-name", default="cec-mpi", metavar="NAME")
    p.add_argument("--time", metavar="TIME", help="as 30 (minutes), 1:30:00 or 1-12:00:00")
    p.add_argument("--nodes", type=values.positive, metavar="K")
    p.add_argument("--cpus-per-task", type=values.positive, default=1, metavar="K")
    p.add_argument("--partition", metavar="NAME")
    p.add_argument("--account", metavar="NAME")
    p.add_argument(
        "--sbatch",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any other option of sbatch, as mem=4G or exclusive",
    )
    p.add_argument(
        "--setup",
        action="append",
        default=[],
        metavar="LINE",
        help="of shell, before the run, as 'module load openmpi'",
    )
    p.add_argument(
        "--array", metavar="FILE", help="a job array: the options of one of its tasks on each line"
    )
    p.add_argument(
        "--preemptible",
        action="store_true",
        help="on a warning write a checkpoint and have the job requeued to go on",
    )
    p.add_argument(
        "--warning",
        type=values.positive,
        metavar="SECONDS",
        help="before the end of the job's time, by default 120",
    )
    p.add_argument("--restarts", type=values.positive, metavar="K", help="at most, by default 100")
    p.add_argument(
        "--on-loss",
        choices=["end", "continue"],
        default="end",
        help="whether losing a machine ends the job",
    )
    p.add_argument("run", nargs=argparse.REMAINDER, help="what the job is to do")
    p.set_defaults(command=partial(_slurm, run_parser=commands.choices["run"]))


def _slurm(arguments: argparse.Namespace, run_parser: argparse.ArgumentParser) -> int:
    if not arguments.preemptible:
        for name in ("warning", "restarts"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name}: expected --preemptible with it")
    words = arguments.run
    if words and words[0] != "run":
        raise InputError(f"{words[0]!r}: expected run STORE --out DIR ... after the options")
    parameters = _parameters(arguments.array) if arguments.array is not None else []
    runs = [
        _parsed(run_parser, words[1:] if words else ["STORE", "--out", "DIR"], line, where)
        for where, line in parameters or [("", [])]
    ]
    _check(arguments, runs)
    text = batch_script(
        _without_out(words[1:]),
        runs[0].out if words else None,
        launcher=arguments.launcher,
        tasks=arguments.ntasks or _ranks(runs, bool(words)),
        job_name=arguments.job_name,
        time=arguments.time,
        nodes=arguments.nodes,
        cpus_per_task=arguments.cpus_per_task,
        partition=arguments.partition,
        account=arguments.account,
        sbatch=_pairs(arguments.sbatch),
        setup=arguments.setup,
        parameters=[line for _, line in parameters],
        preemptible=arguments.preemptible,
        warning=arguments.warning or 120,
        restarts=arguments.restarts or 100,
        on_loss="continue" if _goes_on(arguments, runs) else "end",
    )
    print(text, end="")
    return 0


def _parameters(path: str) -> list[tuple[str, list[str]]]:
    """The words of each line of a file, and where they stand."""
    found = []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
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


def _parsed(
    parser: argparse.ArgumentParser, words: Sequence[str], line: Sequence[str], where: str
) -> argparse.Namespace:
    """What ``cec-mpi run`` makes of these words, so that the job does not fail on them."""
    if _without_out(line) != line:
        raise InputError(f"{where}--out: tasks of an array have DIR/1, DIR/2, ... of themselves")
    try:
        return parser.parse_args([*words, *line])
    except InputError as error:
        raise InputError(f"{where}{error}") from None


def _check(arguments: argparse.Namespace, runs: Sequence[argparse.Namespace]) -> None:
    for run in runs:
        if run.serial:
            raise InputError("--serial: expected a run of several ranks in a job of Slurm")
        if arguments.preemptible and run.overwrite:
            raise InputError("--overwrite: a --preemptible job would begin anew at each restart")


def _goes_on(arguments: argparse.Namespace, runs: Sequence[argparse.Namespace]) -> bool:
    return "continue" in (arguments.on_loss, *(run.on_loss for run in runs))


def _without_out(words: Sequence[str]) -> list[str]:
    """All words of a run but its --out."""
    kept: list[str] = []
    after_out = False
    for word in words:
        if not (after_out or word == "--out" or word.startswith("--out=")):
            kept.append(word)
        after_out = word == "--out" and not after_out
    return kept


def _ranks(runs: Sequence[argparse.Namespace], are_known: bool) -> int:
    """The ranks that runs need, one of the master, as their stores say."""
    if not are_known:
        raise InputError("--ntasks: expected it where the script takes the store as its argument")
    try:
        ranks: set[int] = {1 + _machines(run) + run.spares for run in runs}
    except CecError as error:
        raise type(error)(f"{error}; with --ntasks RANKS the store is not looked at") from None
    if len(ranks) > 1:
        raise InputError(f"--array: its tasks need {sorted(ranks)} ranks: expected --ntasks RANKS")
    return ranks.pop()


def _machines(run: argparse.Namespace) -> int:
    """How many machines a run starts."""
    from cec_mpi.store.reader import open_store
    from cec_mpi.store.staging import node_directory

    if run.machines:
        return len(run.machines)
    return open_store(node_directory(run.store)).manifest.code.machines


def _pairs(texts: Sequence[str]) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    for text in texts:
        key, equals, value = text.removeprefix("--").partition("=")
        if key in pairs:
            raise InputError(f"--sbatch {key}: expected it once")
        pairs[key] = value if equals else None
    return pairs
