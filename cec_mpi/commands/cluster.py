"""Write batch scripts for clusters: slurm."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cec_mpi.cluster.slurm import LAUNCHERS, batch_script, elastic_scripts
from cec_mpi.errors import CecError, InputError, StoreError
from cec_mpi.files.regular import read_given
from cec_mpi.options import values
from cec_mpi.options.elastic import CONNECTION, Elastic
from cec_mpi.options.option import add_flag, from_flags
from cec_mpi.run.options import run_options
from cec_mpi.terminal import put, warn
from cec_mpi.text import plural

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import Manifest

_STORE = "STORE"  # that the script takes as its argument


def add_slurm(commands: Any) -> None:
    """``cec-mpi slurm``."""
    p = commands.add_parser(
        "slurm",
        help="write a Slurm batch script for cec-mpi run",
        usage="%(prog)s [OPTIONS] [run STORE --out DIR ...]",
        description="Write a Slurm batch script to standard output. If no run is given, the script "
        "takes STORE, DIR and options of cec-mpi run as its arguments. With --elastic, write two "
        "scripts into the current directory.",
    )
    add_flag(
        p,
        "--launcher",
        "how the job starts ranks: mpirun, mpiexec.hydra (Intel MPI), or srun with pmix or pmi2 "
        "(default: mpirun)",
        choices=LAUNCHERS,
        default="mpirun",
    )
    add_flag(
        p,
        "--elastic N",
        "write two scripts, NAME-master.sbatch and NAME-machines.sbatch: an elastic run, and N "
        "jobs of one machine each that join it",
        values.positive,
    )
    add_flag(
        p,
        "--ntasks RANKS",
        "number of ranks (default: one for the master and one for each machine of the store); in "
        "an elastic run further ranks are spares",
        values.positive,
    )
    add_flag(p, "--job-name NAME", "name of the job (default: cec-mpi)", default="cec-mpi")
    add_flag(p, "--time TIME", "time limit of the job, such as 30 (minutes), 1:30:00 or 1-12:00:00")
    add_flag(p, "--nodes K", "number of nodes (default: Slurm decides)", values.positive)
    add_flag(p, "--cpus-per-task K", "CPUs for each rank (default: 1)", values.positive, default=1)
    add_flag(p, "--partition NAME", "partition of the job")
    add_flag(p, "--account NAME", "account of the job")
    add_flag(
        p,
        "--sbatch KEY=VALUE",
        "any other option of sbatch, such as mem=4G or exclusive; may be repeated",
        default=(),
    )
    add_flag(
        p,
        "--master-sbatch KEY=VALUE",
        "with --elastic: an option of sbatch for the master only, such as partition=long; may be "
        "repeated",
        default=(),
    )
    add_flag(
        p,
        "--setup LINE",
        "shell command before the run, such as 'module load openmpi'; may be repeated",
        default=(),
    )
    add_flag(p, "--array FILE", "write a job array; each line of FILE has the options of one run")
    add_flag(
        p,
        "--preemptible",
        "before preemption or the end of the job's time, write a checkpoint and requeue the job, "
        "which then continues",
        default=False,
    )
    add_flag(
        p,
        "--warning TIME",
        "how long before the end of the job's time the run is stopped (default: 120s)",
        values.seconds,
    )
    add_flag(p, "--restarts K", "how often the job may be requeued (default: 100)", values.positive)
    p.add_argument(
        "run", nargs=argparse.REMAINDER, help="the run of the job: run STORE --out DIR ..."
    )
    p.set_defaults(command=partial(_slurm, run_parser=commands.choices["run"]))


def _slurm(arguments: argparse.Namespace, run_parser: argparse.ArgumentParser) -> int:
    if not (arguments.preemptible or arguments.elastic):
        for name in ("warning", "restarts"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name} needs --preemptible or --elastic")
    words = arguments.run
    if words and words[0] != "run":
        raise InputError(f"found {words[0]!r} after the options, expected run STORE --out DIR ...")
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
        "warning": math.ceil(arguments.warning or 120),
        "restarts": arguments.restarts or 100,
    }
    if arguments.elastic:
        return _write_elastic(arguments, words[1:], run_parser, options, shared)
    if arguments.master_sbatch:
        raise InputError("--master-sbatch needs --elastic")
    parameters = _parameters(arguments.array) if arguments.array is not None else []
    runs = [
        _parsed(run_parser, words[1:] if words else [_STORE, "--out", "DIR"], line, where)
        for where, line in parameters or [("", [])]
    ]
    for run in runs:
        if run.serial:
            raise InputError("--serial: expected a run of several ranks in a job of Slurm")
        if run.local is not None and arguments.ntasks != 1:
            raise InputError("--local: the ranks of the job are the machines (or give --ntasks 1)")
        if arguments.preemptible and run.overwrite:
            raise InputError(
                "--overwrite with --preemptible would discard the progress at each restart: "
                "expected only one of them"
            )
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
    """Write the scripts of the master and of machines into the current directory."""
    if not words:
        raise InputError("--elastic needs run STORE --out DIR ... after the options")
    others = {
        "--launcher": arguments.launcher != "mpirun",
        "--ntasks": arguments.ntasks,
        "--nodes": arguments.nodes,
        "--array": arguments.array,
        "--preemptible": arguments.preemptible,
    }
    for name, is_given in others.items():
        if is_given:
            raise InputError(
                f"{name} cannot be combined with --elastic, whose machines are jobs of one "
                "process each"
            )
    if "/" in arguments.job_name or arguments.job_name[:1] in ("", "-"):
        raise InputError(f"--job-name {arguments.job_name!r}: expected a name that files can have")
    run = _parsed(run_parser, words, [], "")
    for name, is_given in (
        ("--serial", run.serial),
        ("--local", run.local is not None),
        ("--overwrite", run.overwrite),
    ):
        if is_given:
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
                f"{path} exists with other content: remove it, or choose another --job-name"
            )
    for name, path in paths.items():
        path.write_text(scripts[name])
    master, machines = (shlex.quote(str(paths[name])) for name in ("master", "machines"))
    put(f"sbatch {machines} $(sbatch --parsable {master})")
    return 0


def _warn_of_too_few(machines: int, run: argparse.Namespace) -> None:
    """Warn if these machines are too few for a step, as far as the store can be read from here."""
    try:
        manifest = _manifest(run)
    except StoreError:
        return
    recovery = manifest.code.recovery
    if run.machines is None and manifest.placement.could_spare(recovery, machines) < 0:
        warn(
            f"--elastic {machines}: a step needs {plural(recovery, 'machine')}: the run waits "
            "until more machines join"
        )


# --- words of another command ---------------------------------------------------------------


def _parsed(
    parser: argparse.ArgumentParser, words: Sequence[str], line: Sequence[str], where: str
) -> argparse.Namespace:
    """Parse words as ``cec-mpi run`` does, so that errors are found before the job starts."""
    from cec_mpi.run.settings import task_options
    from cec_mpi.tasks import find_task

    if _without_out(line) != line:
        raise InputError(
            f"{where}--out: expected it only after run, because the runs of an array write to "
            "DIR/1, DIR/2, ..."
        )
    try:
        arguments = parser.parse_args([*words, *line])
        run = run_options(arguments)
        # The script's arguments may name the task, and a user's task may exist only on the cluster.
        if run.store != _STORE and ":" not in run.task:
            task_options(find_task(run.task), run, 0)
    except InputError as error:
        raise InputError(f"{where}{error}") from None
    return arguments


def _without_out(words: Sequence[str]) -> list[str]:
    """Return the words of a run without its --out."""
    kept: list[str] = []
    after_out = False
    for word in words:
        if not (after_out or word == "--out" or word.startswith("--out=")):
            kept.append(word)
        after_out = word == "--out" and not after_out
    return kept


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, str | None]:
    """Parse options of another program, each written KEY=VALUE or KEY."""
    found: dict[str, str | None] = {}
    for text in texts:
        key, equals, value = text.removeprefix("--").partition("=")
        if key in found:
            raise InputError(f"{flag} {key} was given twice, expected it once")
        found[key] = value if equals else None
    return found


def _parameters(path: str) -> list[tuple[str, list[str]]]:
    """Return the words of each line of a file, and the place of the line for messages."""
    found = []
    try:
        lines = read_given(Path(path)).decode().splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text ({error}): expected lines of options") from None
    for number, line in enumerate(lines, start=1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if words:
            found.append((f"{path}, line {number}: ", words))
    if not found:
        raise InputError(f"{path} has no options: expected a line for each run of the array")
    return found


# --- what the store says --------------------------------------------------------------------


def _ranks(runs: Sequence[argparse.Namespace], are_known: bool) -> int:
    """Return the number of ranks that runs need, with the master, according to their stores."""
    if not are_known:
        raise InputError(
            "expected --ntasks RANKS, because the store is an argument of the script and not "
            "known yet"
        )
    try:
        ranks = {
            1 + (len(run.machines) if run.machines else _manifest(run).code.machines)
            for run in runs
        }
    except CecError as error:
        raise type(error)(
            f"{error}; give --ntasks RANKS if the store cannot be read here"
        ) from None
    if len(ranks) > 1:
        raise InputError(
            f"--array: its runs need different numbers of ranks, {sorted(ranks)}: expected "
            "--ntasks RANKS"
        )
    return ranks.pop()


def _manifest(run: argparse.Namespace) -> Manifest:
    """Return the manifest of the store of a run."""
    from cec_mpi.store.reader import open_store
    from cec_mpi.store.staging import node_directory

    return open_store(node_directory(run.store)).manifest
