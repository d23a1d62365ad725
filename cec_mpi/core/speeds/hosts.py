"""What was learned of machines on hosts, while these are away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.speeds.given import Floats

_MOST = 1000  # hosts that are remembered; each takes a few hundred bytes

Column = NDArray[Any]
"""Numbers of which the last axis is that of machines."""


class KnownHosts:
    """Keeps what is known of a machine when another host becomes it, and gives it back.

    Several machines of one host are taken to be alike: of those that have left, the last one is
    remembered.
    """

    def __init__(self) -> None:
        self._host_of: dict[int, str] = {}
        self._kept: dict[str, Floats] = {}
        self._unknown: Floats = np.empty(0)

    def forget(self, unknown: Sequence[Column]) -> None:
        """Nothing is known of any machine, which these numbers say."""
        self._kept.clear()
        self._unknown = _taken(unknown, 0)

    def move(
        self, columns: Sequence[Column], hosts: Mapping[int, str], known: Sequence[bool]
    ) -> list[int]:
        """Put what is known of their hosts in the place of what is known of machines that moved.

        Parameters
        ----------
        columns : sequence of ndarray
            What is known of machines now.
        hosts : mapping of int to str
            Of machines, from 1.
        known : (N,) sequence of bool
            Whether anything is known of each machine.

        Returns
        -------
        list of int
            Places of the machines that moved, from 0.
        """
        before = dict(self._host_of)
        moved = [n for n, host in hosts.items() if before.get(n) != host]
        of_hosts = {host: _taken(columns, n - 1) for n, host in before.items() if known[n - 1]}
        for n in moved:
            if n in before and known[n - 1]:
                self._keep(before[n], _taken(columns, n - 1))
        for n in moved:
            host = self._host_of[n] = hosts[n]
            _put(columns, n - 1, of_hosts.get(host, self._kept.get(host, self._unknown)))
        return [n - 1 for n in moved]

    def _keep(self, host: str, known: Floats) -> None:
        self._kept.pop(host, None)
        self._kept[host] = known
        if len(self._kept) > _MOST:
            del self._kept[next(iter(self._kept))]


def _taken(columns: Sequence[Column], at: int) -> Floats:
    return np.concatenate([np.ravel(each[..., at]) for each in columns], dtype=np.float64)


def _put(columns: Sequence[Column], at: int, numbers: Floats) -> None:
    begin = 0
    for each in columns:
        end = begin + each[..., at].size
        each[..., at] = numbers[begin:end].reshape(each.shape[:-1])
        begin = end
