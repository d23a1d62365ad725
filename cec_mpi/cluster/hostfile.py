"""Hostfiles of the MPI launchers, from names of hosts or from an allocation of Slurm."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cec_mpi.errors import InputError
from cec_mpi.processes.launcher import ranks_by_node
from cec_mpi.text import plural


@dataclass(frozen=True)
class Host:
    """A host with the number of ranks that it takes.

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
        "Open MPI", "{name} slots={ranks}", "slots = ranks that it takes", "mpirun --hostfile"
    ),
    "mpich": _Format("MPICH (Hydra)", "{name}:{ranks}", "host:ranks", "mpiexec -f"),
    "intelmpi": _Format("Intel MPI", "{name}:{ranks}", "host:ranks", "mpiexec.hydra -machinefile"),
}

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_MOST_HOSTS = 100_000  # a nodelist in which digits were mistyped takes no memory


def hostfile_text(format: str, hosts: Sequence[Host]) -> str:
    """A hostfile with comments that say how it is used.

    Parameters
    ----------
    format : str
        A key of `FORMATS`.
    hosts : sequence of Host
        In the order in which they get ranks: the first has the master.

    Raises
    ------
    InputError
        No hosts, or one of them twice.

    Examples
    --------
    >>> text = hostfile_text("openmpi", [Host("node01", 3), Host("node02", 2)])
    >>> text.splitlines()[-2:]
    ['node01 slots=3', 'node02 slots=2']
    """
    names = [host.name for host in hosts]
    if not names:
        raise InputError("a hostfile of no hosts: expected at least one HOST:RANKS")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"host {twice[0]} is there twice: expected one HOST:RANKS for each host")
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
    """A host as ``HOST:RANKS``.

    Raises
    ------
    InputError
        It is none.
    """
    name, _, ranks = text.rpartition(":")
    if not re.fullmatch(_NAME, name) or not re.fullmatch("0*[1-9][0-9]{0,8}", ranks):
        raise InputError(f"{text!r}: expected HOST:RANKS, as node01:4")
    return Host(name, int(ranks))


def hosts_of_job(environment: Mapping[str, str]) -> list[Host]:
    """The hosts of a Slurm allocation, with its tasks on each.

    Parameters
    ----------
    environment : mapping
        With ``SLURM_JOB_NODELIST`` and ``SLURM_TASKS_PER_NODE``, as batch scripts have it.

    Raises
    ------
    InputError
        They are missing, or cannot be read.
    """
    nodes, tasks = "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"
    for name in (nodes, tasks):
        if not environment.get(name):
            raise InputError(
                f"{name} is not set: expected to be in a job of Slurm (sbatch, salloc)"
            )
    names = expand_nodelist(environment[nodes])
    try:
        ranks = ranks_by_node(environment[tasks])
    except ValueError as error:
        raise InputError(f"{tasks}={error}") from None
    if len(names) != len(ranks):
        raise InputError(
            f"{nodes}={environment[nodes]} has {plural(len(names), 'host')}, "
            f"{tasks}={environment[tasks]} is for {len(ranks)}"
        )
    return [Host(name, count) for name, count in zip(names, ranks, strict=True)]


def expand_nodelist(text: str) -> list[str]:
    """The names of hosts that Slurm writes in short.

    Raises
    ------
    InputError
        It is no such list.

    Examples
    --------
    >>> expand_nodelist("login,n[1-2,08-10]")
    ['login', 'n1', 'n2', 'n08', 'n09', 'n10']
    """
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):  # at commas that are in no bracket
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices = [
            _numbers(piece, text) if index % 2 else [piece] for index, piece in enumerate(pieces)
        ]
        if math.prod(map(len, choices)) > _MOST_HOSTS:
            raise InputError(f"nodes {text!r}: expected at most {_MOST_HOSTS} hosts")
        names += map("".join, itertools.product(*choices))
    if wrong := [name for name in names if not re.fullmatch(_NAME, name)]:
        raise InputError(f"nodes {text!r} have {wrong[0]!r}: expected a list, as n[1-4],login")
    return names


def _numbers(text: str, whole: str) -> list[str]:
    """The numbers of a bracket, as wide as they are written: ``1-2,08-10``."""
    numbers: list[str] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not found or not 0 <= last - first < _MOST_HOSTS:
            raise InputError(f"nodes {whole!r} have [{text}]: expected numbers, as [1-4,7]")
        numbers += (f"{number:0{len(found[1])}d}" for number in range(first, last + 1))
    return numbers
