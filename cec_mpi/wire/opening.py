"""A store that the machines are to open, and what they say of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.core.placement.placement import Placement
from cec_mpi.options.machines import MachineOptions
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.staging import node_directory


@dataclass(frozen=True)
class Opening:
    """A store that the machines are to serve.

    Attributes
    ----------
    store : Path
        With ``{host}`` where nodes have directories of their own.
    manifest : Manifest
    placement : Placement
        Which machine has which shards.
    machines : tuple of int
        The machine of each rank from 1 on; 0 for a rank that has no part in this store.
    options : MachineOptions
    threads : tuple of int
        BLAS threads of each rank from 0 on.
    logs : Path or None
        Directory for a log of each machine, for as long as the session lasts.
    several_nodes : bool
        Ranks are on more than one.
    expected : tuple of int
        Further machines, which processes that join later can become.
    """

    store: Path
    manifest: Manifest
    placement: Placement
    machines: tuple[int, ...]
    options: MachineOptions
    threads: tuple[int, ...]
    logs: Path | None = None
    several_nodes: bool = False
    expected: tuple[int, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether the machines measure how fast they are, for an emulation."""
        return self.options.measured

    @property
    def arithmetic(self) -> np.dtype[Any]:
        """What vectors and answers travel, and products are computed, in."""
        wide = self.options.precision == "double"
        return np.dtype(np.float64 if wide else self.manifest.dtype)

    def shard_files(self, machine: int) -> list[Path]:
        """Where the shards of a machine (from 1) are in the store, as this node sees it."""
        directory, shards = node_directory(self.store), self.manifest.shards
        return [directory / shards[n - 1].file for n in self.placement.of(machine)]

    def unseen(self, machine: int) -> list[Path]:
        """Those of its files that are not there."""
        return [file for file in self.shard_files(machine) if not file.exists()]


@dataclass(frozen=True)
class Opened:
    """What a machine says of a store that it was to open.

    Attributes
    ----------
    problem : str
        Why it cannot serve it; empty when it can.
    shards : tuple of str
        The files that it reads, the store's own or copies; none when it has no shard.
    rate : float
        Rows per second that it can do, measured if an emulation is to be based on it.
    unseen : bool
        There is no file where one of its shards should be.
    unlogged : str
        Why it has no log; empty when it has one.
    """

    problem: str = ""
    shards: tuple[str, ...] = ()
    rate: float = 0.0
    unseen: bool = False
    unlogged: str = ""
