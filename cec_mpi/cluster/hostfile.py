"""Hostfiles of MPI launchers, from names of hosts or from a Slurm allocation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cec_mpi.availability.nodelist import HOST_NAME, expand_nodelist
from cec_mpi.errors import InputError
from cec_mpi.processes.launcher import ranks_by_node
from cec_mpi.text import plural


@dataclass(frozen=True)
class Host:
    """A host and the number of its ranks.

    Attributes
    ----------
    name : str
    ranks : int
    """

    name: str
    ranks: int


@dataclass(frozen=True)
class _Format:
    library: str
    line: str
    means: str
    starts: str


FORMATS = {
    "openmpi": _Format(
        "Open MPI", "{name} slots={ranks}", "slots = number of ranks", "mpirun --hostfile"
    ),
    "mpich": _Format("MPICH (Hydra)", "{name}:{ranks}", "host:ranks", "mpiexec -f"),
    "intelmpi": _Format("Intel MPI", "{name}:{ranks}", "host:ranks", "mpiexec.hydra -machinefile"),
}


def hostfile_text(format: str, hosts: Sequence[Host]) -> str:
    """Return the text of a hostfile, with comments on its use.

    Parameters
    ----------
    format : str
        A key of `FORMATS`.
    hosts : sequence of Host
        Hosts in the order of ranks. The master runs on the first one.

    Raises
    ------
    InputError
        There are no hosts, or one is listed twice.

    Examples
    --------
    >>> text = hostfile_text("openmpi", [Host("node01", 3), Host("node02", 2)])
    >>> text.splitlines()[-2:]
    ['node01 slots=3', 'node02 slots=2']
    """
    names = [host.name for host in hosts]
    if not names:
        raise InputError("no hosts were given, expected at least one HOST:RANKS")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"host {twice[0]} is listed twice, expected one HOST:RANKS for each host")
    kind = FORMATS[format]
    ranks = sum(host.ranks for host in hosts)
    comments = (
        f"{kind.library}: one line per host, {kind.means}.",
        f"  {kind.starts} THIS_FILE -n {ranks} cec-mpi run STORE matvec vectors=W.npy --out DIR",
        "Rank 0, the master, runs on the first host; ranks 1, 2, .. are machines 1, 2, ..",
        "Each host must see the store under the same path.",
    )
    lines = [f"# {comment}" for comment in comments]
    lines += [kind.line.format(name=host.name, ranks=host.ranks) for host in hosts]
    return "\n".join(lines) + "\n"


def read_host(text: str) -> Host:
    """Parse a host, ``HOST:RANKS``.

    Raises
    ------
    InputError
        The text has another form.
    """
    name, _, ranks = text.rpartition(":")
    if not re.fullmatch(HOST_NAME, name) or not re.fullmatch("0*[1-9][0-9]{0,8}", ranks):
        raise InputError(f"{text!r}: expected HOST:RANKS, such as node01:4")
    return Host(name, int(ranks))


def hosts_of_job(environment: Mapping[str, str]) -> list[Host]:
    """Return the hosts of a Slurm allocation, with the number of tasks on each.

    Parameters
    ----------
    environment : mapping
        Environment with ``SLURM_JOB_NODELIST`` and ``SLURM_TASKS_PER_NODE``. If the job is
        heterogeneous, it has those of each component, ``SLURM_JOB_NODELIST_HET_GROUP_0`` etc.

    Raises
    ------
    InputError
        A variable is missing, or cannot be parsed.
    """
    job, components = environment.get("SLURM_JOB_ID"), [""]
    # Otherwise the job has been submitted in a heterogeneous one, whose variables are still here.
    if job and environment.get("SLURM_JOB_ID_HET_GROUP_0") == job:
        size = sum(name.startswith("SLURM_JOB_ID_HET_GROUP_") for name in environment)
        components = [f"_HET_GROUP_{number}" for number in range(size)]
    return [host for suffix in components for host in _hosts(environment, suffix)]


def _hosts(environment: Mapping[str, str], suffix: str) -> list[Host]:
    """Return the hosts of a component of a job."""
    nodes, tasks = f"SLURM_JOB_NODELIST{suffix}", f"SLURM_TASKS_PER_NODE{suffix}"
    for name in (nodes, tasks):
        if not environment.get(name):
            raise InputError(f"{name} is not set: run this in a Slurm job (sbatch or salloc)")
    names = expand_nodelist(environment[nodes])
    try:
        ranks = ranks_by_node(environment[tasks])
    except ValueError as error:
        raise InputError(f"{tasks}={error}") from None
    if len(names) != len(ranks):
        raise InputError(
            f"{nodes}={environment[nodes]} has {plural(len(names), 'host')}, but "
            f"{tasks}={environment[tasks]} has {len(ranks)}"
        )
    return [Host(name, count) for name, count in zip(names, ranks, strict=True)]
