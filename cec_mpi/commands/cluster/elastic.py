"""The command slurm with --elastic: two scripts."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cec_mpi.cluster.elastic import elastic_scripts
from cec_mpi.commands.cluster.placed import placement_of
from cec_mpi.commands.cluster.words import pairs, parsed, without_out
from cec_mpi.errors import InputError, StoreError
from cec_mpi.files.regular import read_given
from cec_mpi.options.elastic import CONNECTION, Elastic
from cec_mpi.options.option import from_flags
from cec_mpi.terminal import put, warn


def write_elastic(
    arguments: argparse.Namespace, words: Sequence[str], run_parser: argparse.ArgumentParser
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
    run = parsed(run_parser, words, [], "")
    if run.serial or run.overwrite:
        name = "--serial" if run.serial else "--overwrite"
        raise InputError(f"{name} with --elastic: machines join, and the run is resumed")
    file = run.accept or f"{run.out.rstrip('/')}/{CONNECTION}"
    replace(from_flags(Elastic, run), accept=file).check_listening()
    accept = [] if run.accept else ["--accept", file]
    scripts = elastic_scripts(
        arguments.elastic,
        [*(word for word in without_out(words) if word != "--resume"), *accept],
        run.out,
        file,
        job_name=arguments.job_name,
        time=arguments.time,
        cpus_per_task=arguments.cpus_per_task,
        partition=arguments.partition,
        account=arguments.account,
        sbatch=pairs("--sbatch", arguments.sbatch),
        master_sbatch=pairs("--master-sbatch", arguments.master_sbatch),
        setup=arguments.setup,
        warning=arguments.warning or 120,
        restarts=arguments.restarts or 100,
    )
    _warn_of_too_few(arguments.elastic, run)
    names = [f"{arguments.job_name}-{name}.sbatch" for name in scripts._fields]
    for name, text in zip(names, scripts, strict=True):
        _check_same(Path(name), text)
    for name, text in zip(names, scripts, strict=True):
        Path(name).write_text(text)
    master, machines = map(shlex.quote, names)
    put(f"sbatch {machines} $(sbatch --parsable {master})")
    return 0


def _warn_of_too_few(machines: int, run: argparse.Namespace) -> None:
    """Say that so few machines can compute no step, where the store is seen from here."""
    try:
        placement, recovery = placement_of(run)
    except StoreError:
        return
    if run.machines is None and run.adopt is None:
        shards = placement.count(placement.largest(machines))
        if shards < recovery:
            warn(
                f"--elastic {machines}: a step needs {recovery} shards, and these machines have "
                f"{shards}: the run waits for others to join, too, or give it --adopt"
            )


def _check_same(path: Path, text: str) -> None:
    """Refuse to replace a script that somebody may have changed."""
    if path.exists() and read_given(path) != text.encode():
        raise InputError(
            f"{path}: is there and differs, expected another --job-name, or that it is removed"
        )
