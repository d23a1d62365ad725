"""Commands that write files for clusters: slurm, hostfile."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cec_mpi.cluster.hostfile import FORMATS, hostfile_text, hosts_of_job, read_host
from cec_mpi.cluster.slurm import LAUNCHERS, batch_script, elastic_scripts
from cec_mpi.errors import CecError, InputError, StoreError
from cec_mpi.files.regular import read_given
from cec_mpi.options import values
from cec_mpi.options.elastic import CONNECTION, Elastic, if_removed
from cec_mpi.options.option import add_flag, from_flags
from cec_mpi.options.placed import Placed
from cec_mpi.run.options import run_options
from cec_mpi.terminal import put, warn

if TYPE_CHECKING:
    from cec_mpi.core.plan.placement import Placement

_STORE = "STORE"  # that the script takes as its argument


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


def add_hostfile(commands: Any) -> None:
    """``cec-mpi hostfile``."""
    p = commands.add_parser("hostfile", help="write a hostfile for mpirun")
    add_flag(p, "--format", "of which MPI", required=True, choices=FORMATS)
    add_flag(p, "--from-slurm", "of the allocation that this process is in", default=False)
    p.add_argument("hosts", nargs="*", metavar="HOST:RANKS", help="as node01:4")
    p.set_defaults(command=_hostfile)


def _hostfile(arguments: argparse.Namespace) -> int:
    if arguments.from_slurm:
        if arguments.hosts:
            raise InputError(f"--from-slurm: expected no hosts with it, found {arguments.hosts[0]}")
        hosts = hosts_of_job(os.environ)
    else:
        hosts = [read_host(text) for text in arguments.hosts]
    put(hostfile_text(arguments.format, hosts).removesuffix("\n"))
    return 0


def _slurm(arguments: argparse.Namespace, run_parser: argparse.ArgumentParser) -> int:
    if not (arguments.preemptible or arguments.elastic):
        for name in ("warning", "restarts"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name}: expected --preemptible with it, or --elastic")
    words = arguments.run
    if words and words[0] != "run":
        raise InputError(f"{words[0]!r}: expected run STORE --out DIR ... after the options")
    options = {
        "job-name": arguments.job_name,
        "ntasks": arguments.ntasks,
        "nodes": arguments.nodes,
        "cpus-per-task": arguments.cpus_per_task,
        "time": arguments.time,
        "partition": arguments.partition,
        "account": arguments.account,
    }
    shared = {
        "setup": arguments.setup,
        "warning": arguments.warning or 120,
        "restarts": arguments.restarts or 100,
    }
    if arguments.elastic:
        return _write_elastic(arguments, words[1:], run_parser, options, shared)
    if arguments.master_sbatch:
        raise InputError("--master-sbatch: expected --elastic with it")
    parameters = _parameters(arguments.array) if arguments.array is not None else []
    runs = [
        _parsed(run_parser, words[1:] if words else [_STORE, "--out", "DIR"], line, where)
        for where, line in parameters or [("", [])]
    ]
    for run in runs:
        if run.serial:
            raise InputError("--serial: expected a run of several ranks in a job of Slurm")
        if arguments.preemptible and run.overwrite:
            raise InputError("--overwrite: a --preemptible job would begin anew at each restart")
    text = batch_script(
        _without_out(words[1:]),
        runs[0].out if words else None,
        {**options, "ntasks": arguments.ntasks or _ranks(runs, bool(words))},
        _pairs("--sbatch", arguments.sbatch),
        launcher=arguments.launcher,
        parameters=[line for _, line in parameters],
        preemptible=arguments.preemptible,
        elastic=any(from_flags(Elastic, run).is_elastic for run in runs),
        **shared,
    )
    put(text.removesuffix("\n"))
    return 0


def _write_elastic(
    arguments: argparse.Namespace,
    words: Sequence[str],
    run_parser: argparse.ArgumentParser,
    options: dict[str, Any],
    shared: dict[str, Any],
) -> int:
    """Write the master's script and that of machines into this directory."""
    if not words:
        raise InputError("--elastic: expected run STORE --out DIR ... after the options")
    others = {
        "--launcher": arguments.launcher != "mpirun",
        "--ntasks": arguments.ntasks,
        "--nodes": arguments.nodes,
        "--array": arguments.array,
        "--preemptible": arguments.preemptible,
    }
    for name, is_given in others.items():
        if is_given:
            raise InputError(f"{name} with --elastic: machines are jobs of one process each")
    if "/" in arguments.job_name or arguments.job_name[:1] in ("", "-"):
        raise InputError(f"--job-name {arguments.job_name!r}: expected a name for files")
    run = _parsed(run_parser, words, [], "")
    if run.serial or run.overwrite:
        name = "--serial" if run.serial else "--overwrite"
        raise InputError(f"{name} with --elastic: machines join, and the run is resumed")
    file = run.accept or f"{run.out.rstrip('/')}/{CONNECTION}"
    replace(from_flags(Elastic, run), accept=file).check_listening()
    accept = [] if run.accept else ["--accept", file]
    scripts = elastic_scripts(
        arguments.elastic,
        [*(word for word in _without_out(words) if word != "--resume"), *accept],
        run.out,
        file,
        options,
        _pairs("--sbatch", arguments.sbatch),
        _pairs("--master-sbatch", arguments.master_sbatch),
        **shared,
    )
    _warn_of_too_few(arguments.elastic, run)
    paths = {name: Path(f"{arguments.job_name}-{name}.sbatch") for name in scripts}
    for name, path in paths.items():
        if path.exists() and read_given(path) != scripts[name].encode():  # somebody's changes
            raise InputError(
                f"{path}: is there and differs, expected another --job-name, or that it is removed"
            )
    for name, path in paths.items():
        path.write_text(scripts[name])
    master, machines = (shlex.quote(str(paths[name])) for name in ("master", "machines"))
    put(f"sbatch {machines} $(sbatch --parsable {master})")
    return 0


def _warn_of_too_few(machines: int, run: argparse.Namespace) -> None:
    """Say that so few machines can compute no step, where the store is seen from here."""
    try:
        placement, recovery = _placement(run)
    except StoreError:
        return
    if run.machines is None and not run.adopt:
        shards = placement.count(placement.largest(machines))
        if shards < recovery:
            warn(
                f"--elastic {machines}: a step needs {recovery} shards, and these machines have "
                f"{shards}: the run waits for others to join, too, or give it --adopt"
            )


# --- words of another command ---------------------------------------------------------------


def _parsed(
    parser: argparse.ArgumentParser, words: Sequence[str], line: Sequence[str], where: str
) -> argparse.Namespace:
    """What ``cec-mpi run`` makes of these words, so that the job does not fail on them."""
    from cec_mpi.run.settings import task_options
    from cec_mpi.tasks import find_task

    if _without_out(line) != line:
        raise InputError(f"{where}--out: tasks of an array have DIR/1, DIR/2, ... of themselves")
    try:
        arguments = parser.parse_args([*words, *line])
        run = run_options(arguments)
        # The script's arguments may name the task, and a user's own may be on the cluster alone.
        if run.store != _STORE and ":" not in run.task:
            task_options(find_task(run.task), run, 0)
    except InputError as error:
        raise InputError(f"{where}{error}") from None
    return arguments


def _without_out(words: Sequence[str]) -> list[str]:
    """All words of a run but its --out."""
    kept: list[str] = []
    after_out = False
    for word in words:
        if not (after_out or word == "--out" or word.startswith("--out=")):
            kept.append(word)
        after_out = word == "--out" and not after_out
    return kept


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, str | None]:
    """Options of another program that were given as KEY=VALUE, or as KEY alone."""
    found: dict[str, str | None] = {}
    for text in texts:
        key, equals, value = text.removeprefix("--").partition("=")
        if key in found:
            raise InputError(f"{flag} {key}: expected it once")
        found[key] = value if equals else None
    return found


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


# --- what the store says --------------------------------------------------------------------


def _ranks(runs: Sequence[argparse.Namespace], are_known: bool) -> int:
    """The ranks that runs need, one of the master, as their stores say."""
    if not are_known:
        raise InputError("--ntasks: expected it where the script takes the store as its argument")
    try:
        ranks = {
            1 + (len(run.machines) if run.machines else _placement(run)[0].machines) for run in runs
        }
    except CecError as error:
        raise type(error)(f"{error}; with --ntasks RANKS the store is not looked at") from None
    if len(ranks) > 1:
        raise InputError(f"--array: its tasks need {sorted(ranks)} ranks: expected --ntasks RANKS")
    return ranks.pop()


def _placement(run: argparse.Namespace) -> tuple[Placement, int]:
    """Which machine of a run has which shards, and how many of them a step needs."""
    from cec_mpi.store.reader import open_store
    from cec_mpi.store.staging import node_directory

    manifest = open_store(node_directory(run.store)).manifest
    if run.shards_per_machine == "auto" and not isinstance(run.speeds, tuple):
        raise InputError("shards per machine auto: the number of machines is not known")
    placement = from_flags(Placed, run).placed(manifest, None, None, run.speeds)
    return placement, manifest.code.recovery
