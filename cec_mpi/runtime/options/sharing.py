"""Options of a session: how rows are assigned to machines, and how machines read them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cec_mpi.errors import InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import STUDIES, Group, as_int, check_choices, option
from cec_mpi.store.files.paths import as_path
from cec_mpi.text import plural, shorten

if TYPE_CHECKING:
    from cec_mpi.core.plan.assignment import Scheme
    from cec_mpi.store.format.manifest import Manifest
    from cec_mpi.store.shard import Holding, Precision, Verify

SpeedsOption = Sequence[float] | Mapping[str, float] | Literal["learn"]


@dataclass(frozen=True, kw_only=True)
class AssignmentOptions(Group):
    """How rows are assigned to machines.

    Attributes
    ----------
    speeds : sequence of float, mapping of str to float, or "learn"
        Relative speeds of machines 1..N, or of hosts by name, for each machine on that host. By
        default they are learned from measured times.
    threads : int, optional
        BLAS threads of each machine. By default its share of the node's cores.
    scheme : {"heterogeneous", "cyclic"}
        Assign rows in proportion to speeds, or the same number to all machines.
    """

    title = "speeds and threads of machines"

    speeds: SpeedsOption = option(
        "learn",
        "--speeds LIST|learn",
        "relative speeds of machines, such as 2,2,3, or of hosts, such as node01=2,node02=1 "
        "(default: learned from measured times)",
        values.speeds_or_learn,
        is_common=True,
    )
    threads: int | None = option(
        None,
        "--threads K",
        "BLAS threads of each machine (default: its share of the cores)",
        values.positive,
        is_common=True,
    )
    scheme: Scheme = option(
        "heterogeneous",
        "--scheme",
        "assign rows by speed, or equally (cyclic) for comparison (default: heterogeneous)",
        choices=("heterogeneous", "cyclic"),
        section=STUDIES,
    )

    def resolve(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options against a store."""
        check_choices(AssignmentOptions, self)
        if self.scheme not in manifest.placement.schemes:
            raise InputError(
                f"scheme {self.scheme} needs a coded store: rows of a sparse X can be assigned "
                "only to machines that store them"
            )
        if self.threads is not None and as_int("threads", self.threads) < 1:
            raise InputError(f"threads {self.threads}: expected at least 1")
        return {"speeds": as_speeds(self.speeds, manifest.code.machines)}


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Group):
    """How machines read their shards, and in which precision they compute.

    Attributes
    ----------
    precision : {"double", "shard"}
        Precision in which vectors are sent and products computed: float64, or the dtype of the
        shards. If that is float32, it is faster but rounds every vector.
    shards : {"mmap", "ram"}
        Read rows through the page cache ("mmap"), or copy them into memory ("ram").
    verify : {"first-read", "never"}
        Whether a machine compares a block with its checksum when it first reads it.
    """

    title = "reading and arithmetic (rarely needed)"

    precision: Precision = option(
        "double",
        "--precision",
        "compute products in float64 (double), or in the dtype of the shards (shard), which is "
        "faster and less exact if that is float32 (default: double)",
        choices=("double", "shard"),
    )
    shards: Holding = option(
        "mmap",
        "--shards",
        "read rows through the page cache (mmap), or copy them into memory (ram) (default: mmap)",
        choices=("mmap", "ram"),
    )
    verify: Verify = option(
        "first-read",
        "--verify",
        "compare blocks with their checksums when they are first read, or never (default: "
        "first-read)",
        choices=("first-read", "never"),
    )

    def resolve(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options against a store."""
        check_choices(ReadOptions, self)
        return {}


@dataclass(frozen=True, kw_only=True)
class CacheOptions(Group):
    """Where machines keep copies of their shards.

    Attributes
    ----------
    cache : path, optional
        Directory on the disk of each machine's computer, with ``{host}`` for its name. A machine
        copies its shard there, and reads the copy.
    cache_limit : int, optional
        Size of all copies of this user in `cache`, in bytes. The least recently used copies are
        removed. By default they may fill the disk.
    """

    title = "copies of shards"

    cache: str | os.PathLike[str] | None = option(
        None,
        "--cache DIR",
        "each machine copies its shard to DIR on the disk of its computer, and reads the copy; "
        "{host} stands for the name of the computer",
        values.path,
    )
    cache_limit: int | None = option(
        None,
        "--cache-limit SIZE",
        "largest total size of the copies in --cache DIR, such as 200G: the least recently used "
        "are removed",
        values.size,
    )

    def resolve(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options."""
        self.check_cache()
        return {}

    def check_cache(self) -> None:
        """Raise if these options do not fit together.

        Raises
        ------
        InputError
            Names the option, what was found and what was expected.
        """
        if self.cache is not None:
            as_path(self.cache)
        elif self.cache_limit is not None:
            raise InputError("--cache-limit SIZE needs --cache DIR")
        if self.cache_limit is not None and as_int("cache_limit", self.cache_limit) < 1:
            raise InputError(f"cache_limit {self.cache_limit}: expected at least 1 byte")


def as_speeds(given: SpeedsOption | None, total: int) -> SpeedsOption:
    """Check speeds of machines 1..total, or of hosts by name, or ``"learn"``.

    Raises
    ------
    InputError
        Names what was found and what was expected.
    """
    if given is None or isinstance(given, str):
        if given not in (None, "learn"):
            raise InputError(f"speeds {given!r}: expected {plural(total, 'number')}, or learn")
        return "learn"
    if isinstance(given, Mapping):
        from cec_mpi.core.plan.load import check_speeds

        checked_range(check_speeds(list(given.values())).tolist())
        return given
    if isinstance(given, bytes) or not isinstance(given, Sized):
        raise InputError(f"speeds {shorten(given)}: expected {plural(total, 'number')}, or learn")
    return checked_speeds("speed", given, total)


def speeds_by_machine(
    speeds: SpeedsOption, machines: Sequence[int], hosts: Sequence[str], total: int
) -> tuple[float, ...] | None:
    """Return relative speeds of machines 1..total, 1 for those without a rank; None to learn them.

    Parameters
    ----------
    speeds
        Checked speeds, of machines, or of hosts by full name or by the part before the first dot.
    machines : sequence of int
        Machine of each rank from 1 on, 0 for none.
    hosts : sequence of str
        Hosts of these ranks.
    total : int

    Raises
    ------
    InputError
        A machine runs on a host that is not named.

    Examples
    --------
    >>> given = {"fast": 2.0, "slow": 1.0}
    >>> speeds_by_machine(given, [1, 2, 4], ["fast.site", "slow", "fast"], 4)
    (2.0, 1.0, 1.0, 2.0)
    """
    if isinstance(speeds, str):
        return None
    if not isinstance(speeds, Mapping):
        return tuple(speeds)
    found = [1.0] * total
    for machine, host in zip(machines, hosts, strict=True):
        speed = speeds.get(host, speeds.get(host.partition(".")[0]))
        if not machine:
            continue
        if speed is None:
            raise InputError(
                f"speeds of {', '.join(speeds)}: machine {machine} runs on {host}, so "
                f"{host}=SPEED is missing"
            )
        found[machine - 1] = speed
    return tuple(found)


def checked_speeds(name: str, speeds: Sequence[float], total: int) -> tuple[float, ...]:
    """Check that speeds are positive, one for each of the machines 1..total."""
    from cec_mpi.core.plan.load import check_speeds  # here, because machines do not need it

    if len(speeds) != total:
        raise InputError(
            f"{plural(len(speeds), name)}, but {plural(total, 'machine')}: expected one for each"
        )
    try:
        return checked_range(check_speeds(speeds).tolist())
    except InputError as error:
        raise InputError(f"{name}s: {error}") from None


def checked_range(speeds: Sequence[float]) -> tuple[float, ...]:
    """Return speeds, or raise if one of them is too far from 1 for times and ratios of floats."""
    for speed in speeds:
        if not values.MIN_VALUE <= speed <= values.MAX_VALUE:
            raise InputError(
                f"the speed {speed:g}: expected {values.MIN_VALUE:.0e} to {values.MAX_VALUE:.0e}"
            )
    return tuple(speeds)
