"""Which machine runs on which host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InputError

if TYPE_CHECKING:
    from cec_mpi.runtime.places import Place

__all__ = ["host_of_ranks", "placement_table", "speeds_by_host"]


def host_of_ranks(places: Sequence[Place], ranks: int) -> list[str]:
    """The host of the master and of each machine and spare, also when all are in one process."""
    hosts = [place.host for place in places]
    return hosts if len(hosts) > 1 else hosts * ranks


def speeds_by_host(
    speeds: Mapping[str, float], machines: Sequence[int], hosts: Sequence[str], total: int
) -> tuple[float, ...]:
    """The speed of machines 1..total, each that of its host; 1 for those that run nowhere.

    Parameters
    ----------
    speeds : mapping of str to float
        By name of host, whole or up to its first dot; other hosts may be named too.
    machines : sequence of int
        The machine of each rank from 1 on, 0 for none.
    hosts : sequence of str
        Where these ranks run.
    total : int
        Machines of the store.

    Raises
    ------
    InputError
        A machine runs on a host that is not named.

    Examples
    --------
    >>> speeds_by_host({"fast": 2.0, "slow": 1.0}, [1, 2, 4], ["fast.site", "slow", "fast"], 4)
    (2.0, 1.0, 1.0, 2.0)
    """
    found = [1.0] * total
    for machine, host in zip(machines, hosts, strict=True):
        speed = speeds.get(host, speeds.get(host.partition(".")[0]))
        if not machine:
            continue
        if speed is None:
            raise InputError(
                f"speeds of {', '.join(speeds)}: machine {machine} runs on {host}, expected "
                f"{host}=SPEED too"
            )
        found[machine - 1] = speed
    return tuple(found)


def placement_table(header: Mapping[str, Any]) -> str:
    """Where each rank of a run is, and where it reads its shard, for people.

    Parameters
    ----------
    header : mapping
        The first line of its records (see `run_header`).

    Examples
    --------
    >>> print(placement_table({
    ...     "machine_of_rank": [0, 1, 0], "hosts": ["node1", "node1", "node2"],
    ...     "cores": [8, 8, 4], "threads": [4, 4, 4], "shard_files": ["", "/s/shard-0001.npy", ""],
    ... }))
    machine  rank  host   cores  threads  shard
     master     0  node1      8        4
          1     1  node1      8        4  /s/shard-0001.npy
      spare     2  node2      4        4
    """
    hosts, cores, threads = header["hosts"], header["cores"], header["threads"]
    width = max(map(len, ["host", *hosts]))
    lines = [f"machine  rank  {'host':{width}}  cores  threads  shard"]
    served = zip(header["machine_of_rank"], header["shard_files"], strict=True)
    for position, (machine, file) in enumerate(served):
        name = machine or ("spare" if position else "master")
        rank = position if len(hosts) > 1 else 0  # all are in one process
        line = f"{name:>7}  {rank:4}  {hosts[rank]:{width}}  {cores[rank]:5}  {threads[rank]:7}"
        lines.append(f"{line}  {file}".rstrip())
    return "\n".join(lines)
