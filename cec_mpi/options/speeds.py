"""How fast machines are, as a session is told: by machine, by host, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Literal

from cec_mpi.errors import InputError
from cec_mpi.text import plural, shown


class LearnedSpeeds:
    """Learned from the times that machines measure."""

    def by_machine(self, machines: Sequence[int], hosts: Sequence[str], total: int) -> None:
        """Nothing is known beforehand."""


@dataclass(frozen=True)
class MachineSpeeds:
    """Relative, of machines 1..N."""

    speeds: tuple[float, ...]

    def by_machine(
        self, machines: Sequence[int], hosts: Sequence[str], total: int
    ) -> tuple[float, ...]:
        """These, wherever machines run."""
        return self.speeds


@dataclass(frozen=True)
class HostSpeeds:
    """Relative, of each machine on a host, by its name, whole or up to its first dot."""

    by_host: Mapping[str, float]

    def by_machine(
        self, machines: Sequence[int], hosts: Sequence[str], total: int
    ) -> tuple[float, ...]:
        """The speed of machines 1..total, 1 for those that run nowhere.

        `machines` has that of each rank from 1 on, 0 for none; `hosts` has where they run.

        Raises
        ------
        InputError
            A machine runs on a host that is not named.

        Examples
        --------
        >>> speeds = HostSpeeds({"fast": 2.0, "slow": 1.0})
        >>> speeds.by_machine([1, 2, 4], ["fast.site", "slow", "fast"], 4)
        (2.0, 1.0, 1.0, 2.0)
        """
        found = [1.0] * total
        for machine, host in zip(machines, hosts, strict=True):
            speed = self.by_host.get(host, self.by_host.get(host.partition(".")[0]))
            if not machine:
                continue
            if speed is None:
                raise InputError(
                    f"speeds of {', '.join(self.by_host)}: machine {machine} runs on {host}, "
                    f"expected {host}=SPEED too"
                )
            found[machine - 1] = speed
        return tuple(found)


_Speeds = LearnedSpeeds | MachineSpeeds | HostSpeeds
SpeedsOption = Sequence[float] | Mapping[str, float] | Literal["learn"] | _Speeds


def as_speeds(given: SpeedsOption | None, total: int) -> _Speeds:
    """From a speed for each of the machines 1..total, or for hosts by name, or ``"learn"``.

    Raises
    ------
    InputError
        It is nothing of these.
    """
    if isinstance(given, _Speeds):
        return given
    if given is None or isinstance(given, str):
        if given not in (None, "learn"):
            raise InputError(f"speeds {given!r}: expected {plural(total, 'number')}, or learn")
        return LearnedSpeeds()
    if isinstance(given, Mapping):
        from cec_mpi.core.plan.load import check_speeds

        check_speeds(list(given.values()))
        return HostSpeeds(given)
    if isinstance(given, bytes) or not isinstance(given, Sized):
        raise InputError(f"speeds {shown(given)}: expected {plural(total, 'number')}, or learn")
    return MachineSpeeds(checked_speeds("speed", given, total))


def checked_speeds(name: str, speeds: Sequence[float], total: int) -> tuple[float, ...]:
    """Positive numbers, one for each of the machines 1..total."""
    from cec_mpi.core.plan.load import check_speeds  # now: ranks that are machines plan nothing

    if len(speeds) != total:
        raise InputError(f"{plural(len(speeds), name)}: the store has {plural(total, 'machine')}")
    try:
        return tuple(check_speeds(speeds).tolist())
    except InputError as error:
        raise InputError(f"{name}s: {error}") from None
