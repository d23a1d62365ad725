"""How fast machines are, as a session is told: by machine, by host, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Literal

from cec_mpi.errors import InputError
from cec_mpi.text import plural, shown

SpeedsOption = Sequence[float] | Mapping[str, float] | Literal["learn"]


def as_speeds(given: SpeedsOption | None, total: int) -> SpeedsOption:
    """Check a speed for each of the machines 1..total, or for hosts by name, or ``"learn"``.

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

        check_speeds(list(given.values()))
        return given
    if isinstance(given, bytes) or not isinstance(given, Sized):
        raise InputError(f"speeds {shown(given)}: expected {plural(total, 'number')}, or learn")
    return checked_speeds("speed", given, total)


def speeds_by_machine(
    speeds: SpeedsOption, machines: Sequence[int], hosts: Sequence[str], total: int
) -> tuple[float, ...] | None:
    """Relative speeds of machines 1..total, 1 for those that run nowhere; None to learn them.

    Parameters
    ----------
    speeds
        Checked: of machines, or of each machine on a host, by its name, whole or up to its first
        dot.
    machines : sequence of int
        Of each rank from 1 on, 0 for none.
    hosts : sequence of str
        Where these ranks run.
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
                f"speeds of {', '.join(speeds)}: machine {machine} runs on {host}, "
                f"expected {host}=SPEED too"
            )
        found[machine - 1] = speed
    return tuple(found)


def checked_speeds(name: str, speeds: Sequence[float], total: int) -> tuple[float, ...]:
    """Positive numbers, one for each of the machines 1..total."""
    from cec_mpi.core.plan.load import check_speeds  # now: ranks that are machines plan nothing

    if len(speeds) != total:
        raise InputError(f"{plural(len(speeds), name)}: the store has {plural(total, 'machine')}")
    try:
        return tuple(check_speeds(speeds).tolist())
    except InputError as error:
        raise InputError(f"{name}s: {error}") from None
