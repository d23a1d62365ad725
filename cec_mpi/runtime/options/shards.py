"""Options of a session: the assignment of rows, and the reading and caching of shards."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cec_mpi.errors import InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import (
    SIMULATION_TITLE,
    Options,
    as_int,
    as_tuple,
    check_choices,
    option,
)
from cec_mpi.store.files.paths import as_path
from cec_mpi.text import plural, shorten

if TYPE_CHECKING:
    from cec_mpi.core.plan.assignment import Scheme
    from cec_mpi.store.format.manifest import Manifest
    from cec_mpi.store.shard import Holding, Precision, Verification

SpeedsOption = Sequence[float] | Mapping[str, float] | Literal["learn"]


@dataclass(frozen=True, kw_only=True)
class AssignmentOptions(Options):
    """Assignment of rows to machines.

    Attributes
    ----------
    speeds : sequence of float, mapping of str to float, or "learn"
        Relative speeds of machines 1..N, or of the machines on each computer by its host name. By
        default they are learned from measured times.
    threads : int, optional
        BLAS threads of each machine. By default its share of the cores of the node.
    scheme : {"heterogeneous", "cyclic"}
        Assign rows in proportion to speeds, or equally.
    """

    title = "speeds and threads of machines"

    speeds: SpeedsOption = option(
        "learn",
        "--speeds LIST|learn",
        "relative speeds of machines, such as 2,2,3, or by host name, such as node01=2,node02=1 "
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
        section=SIMULATION_TITLE,
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
class ReadOptions(Options):
    """Reading of shards, and precision of the arithmetic.

    Attributes
    ----------
    precision : {"double", "shard"}
        Precision of vectors and products: float64, or the dtype of the shards. float32 is faster,
        but rounds every vector.
    shards : {"mmap", "ram"}
        Read rows through the page cache ("mmap"), or copy them into memory ("ram").
    verify : {"first-read", "never"}
        Compare a block with its checksum when a machine first reads it, or never.
    device : str or sequence of str
        Device that holds and multiplies the shards: "cpu", "auto", "cuda", "cuda:0", "mps" or
        "xpu", optionally after a library, as in "torch:cuda". A sequence has the device of each
        machine 1..N.
    """

    title = "reading and arithmetic (rarely needed)"

    precision: Precision = option(
        "double",
        "--precision",
        "compute products in float64 (double), or in the dtype of the shards (shard), where "
        "float32 is faster and less accurate (default: double)",
        choices=("double", "shard"),
    )
    shards: Holding = option(
        "mmap",
        "--shards",
        "read rows through the page cache (mmap), or copy them into memory (ram) (default: mmap)",
        choices=("mmap", "ram"),
    )
    verify: Verification = option(
        "first-read",
        "--verify",
        "compare blocks with their checksums when they are first read, or never (default: "
        "first-read)",
        choices=("first-read", "never"),
    )
    device: str | Sequence[str] = option(
        "cpu",
        "--device DEVICE",
        "hold and multiply shards on a GPU: auto, cuda, cuda:0, mps or xpu, optionally after a "
        "library, as in torch:cuda, cupy:cuda or jax:cuda; a list such as cpu,cuda has the "
        "device of each machine (default: cpu)",
    )

    def resolve(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options against a store."""
        check_choices(ReadOptions, self)
        devices, total = as_devices(self.device), manifest.code.machines
        if len(devices) not in (1, total):
            raise InputError(
                f"device {','.join(devices)}: expected one device, or one for each of "
                f"{plural(total, 'machine')}"
            )
        return {"device": devices}


@dataclass(frozen=True, kw_only=True)
class CacheOptions(Options):
    """Copies of shards on the disks of machines.

    Attributes
    ----------
    cache : path, optional
        Directory on the disk of each computer, to which a machine copies its shard and from which
        it reads the shard. ``{host}`` stands for the name of the computer.
    cache_limit : int, optional
        Maximum size of all copies of this user in `cache`, in bytes. The least recently used copies
        are removed. By default there is no limit.
    """

    title = "copies of shards"

    cache: str | os.PathLike[str] | None = option(
        None,
        "--cache DIR",
        "copy the shard of each machine to DIR on the disk of its computer, and read the copy; "
        "{host} stands for the name of the computer",
        values.path,
    )
    cache_limit: int | None = option(
        None,
        "--cache-limit SIZE",
        "maximum total size of the copies in --cache DIR, such as 200G; the least recently used "
        "copies are removed",
        values.size,
    )

    def resolve(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options."""
        self.check_cache()
        return {}

    def check_cache(self) -> None:
        """Raise if these options are invalid or contradictory.

        Raises
        ------
        InputError
            The message names the option and the expected value.
        """
        if self.cache is not None:
            as_path(self.cache)
        elif self.cache_limit is not None:
            raise InputError("--cache-limit SIZE needs --cache DIR")
        if self.cache_limit is not None and as_int("cache_limit", self.cache_limit) < 1:
            raise InputError(f"cache_limit {self.cache_limit}: expected at least 1 byte")


def as_devices(value: Any) -> tuple[str, ...]:
    """Return the device of each machine, or one for all.

    Raises
    ------
    InputError
        The message names the value and the expected values.
    """
    from cec_mpi.store.devices import check_device

    names = value.split(",") if isinstance(value, str) else value
    devices: tuple[str, ...] = as_tuple("device", names, "the name of a device, or several")
    for device in devices:
        check_device(device)
    return devices


def as_speeds(value: SpeedsOption | None, total: int) -> SpeedsOption:
    """Return checked speeds of machines 1..total, checked speeds by host name, or "learn".

    Raises
    ------
    InputError
        The message names the value and the expected values.
    """
    if value is None or isinstance(value, str):
        if value not in (None, "learn"):
            raise InputError(f"speeds {value!r}: expected {plural(total, 'number')}, or learn")
        return "learn"
    if isinstance(value, Mapping):
        from cec_mpi.core.plan.load import check_speeds

        validate_speed_range(check_speeds(list(value.values())).tolist())
        return value
    if isinstance(value, bytes) or not isinstance(value, Sized):
        raise InputError(f"speeds {shorten(value)}: expected {plural(total, 'number')}, or learn")
    return validate_speeds("speed", value, total)


def speeds_by_machine(
    speeds: SpeedsOption, machines: Sequence[int], host_names: Sequence[str], total: int
) -> tuple[float, ...] | None:
    """Return relative speeds of machines 1..total; None if they are learned.

    Machines without a rank have speed 1.

    Parameters
    ----------
    speeds
        Checked speeds of machines, or by host name: the full name or its part before the first dot.
    machines : sequence of int
        Machine of each rank from rank 1 on; 0 for none.
    host_names : sequence of str
        Computers of these ranks.
    total : int

    Raises
    ------
    InputError
        A machine runs on a computer without a speed.

    Examples
    --------
    >>> speeds = {"fast": 2.0, "slow": 1.0}
    >>> speeds_by_machine(speeds, [1, 2, 4], ["fast.site", "slow", "fast"], 4)
    (2.0, 1.0, 1.0, 2.0)
    """
    if isinstance(speeds, str):
        return None
    if not isinstance(speeds, Mapping):
        return tuple(speeds)
    result = [1.0] * total
    for machine, host_name in zip(machines, host_names, strict=True):
        speed = speeds.get(host_name, speeds.get(host_name.partition(".")[0]))
        if not machine:
            continue
        if speed is None:
            raise InputError(
                f"speeds of {', '.join(speeds)}: machine {machine} runs on {host_name}, so "
                f"{host_name}=SPEED is missing"
            )
        result[machine - 1] = speed
    return tuple(result)


def validate_speeds(name: str, speeds: Sequence[float], total: int) -> tuple[float, ...]:
    """Return valid speeds, one for each machine; messages call a speed `name`."""
    from cec_mpi.core.plan.load import check_speeds  # not needed by machines

    if len(speeds) != total:
        raise InputError(
            f"found {plural(len(speeds), name)}, expected {total}, one for each machine"
        )
    try:
        return validate_speed_range(check_speeds(speeds).tolist())
    except InputError as error:
        raise InputError(f"{name}s: {error}") from None


def validate_speed_range(speeds: Sequence[float]) -> tuple[float, ...]:
    """Return speeds as a tuple; raise if one is so small or large that ratios may overflow."""
    for speed in speeds:
        if not values.MIN_VALUE <= speed <= values.MAX_VALUE:
            raise InputError(
                f"the speed {speed:g}: expected {values.MIN_VALUE:.0e} to {values.MAX_VALUE:.0e}"
            )
    return tuple(speeds)
