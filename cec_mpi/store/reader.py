"""Opening of stores and their shards."""

from __future__ import annotations

import os
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cec_mpi.core.replicas.parts import Parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.format.manifest import Manifest, ShardEntry
from cec_mpi.store.format.scaling import Scaling, read_scaling
from cec_mpi.store.format.shard_files import find_file_problem
from cec_mpi.store.kinds import open_shard
from cec_mpi.store.manifest_files import check_sizes, read_manifest
from cec_mpi.store.shard import Holding, Shard, Verification

if TYPE_CHECKING:
    from cec_mpi.store.devices import Device


class Store:
    """An open store.

    Attributes
    ----------
    path : Path
    manifest : Manifest
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    def __repr__(self) -> str:
        return f"<Store {str(self.path)!r} of {self.manifest.summary}>"

    def open_shard(
        self,
        machine: int,
        holding: Holding = "mmap",
        verify: Verification = "first-read",
        copy: Path | None = None,
        device: Device | None = None,
    ) -> Shard:
        """Open the shard of one machine.

        Parameters
        ----------
        machine : int
            Number of the machine, from 1.
        holding : {"mmap", "ram"}
        verify : {"first-read", "never"}
        copy : Path, optional
            Copy of the shard file to open instead of the file in the store.
        device : Device, optional
            Device that holds and multiplies the rows; `holding` then has no effect.

        Raises
        ------
        InputError
            The machine does not exist.
        DamagedStoreError
            The file is missing, its size or header is wrong, or its checksums are damaged.
        """
        entry = self._shard_entry(machine)
        path = copy or self.path / entry.file
        return open_shard(path, self.path, self.manifest, machine, holding, verify, device)

    def shard(self, machine: int) -> Any:
        """Return all rows of a shard, after verification.

        Returns
        -------
        (R, r) ndarray, memory-mapped; or scipy.sparse.csr_array
            In a replicated store, the rows of X that the machine holds, in order.

        Raises
        ------
        InputError
            The machine does not exist.
        DamagedStoreError
            The file does not match the manifest. The message names the rows.
        """
        shard: Any = self.open_shard(machine)
        shard.load(self.manifest.rows_of_machine(machine))
        return shard.rows

    def scaling(self) -> Scaling:
        """Return the scaling of rows; see `read_scaling`."""
        return read_scaling(self.path, self.manifest)

    def parts(self) -> tuple[Parts, ReplicaPlacement] | None:
        """Return the parts of a sparse X and their placement; see `Manifest.read_parts`."""
        return self.manifest.read_parts(self.path)

    def check_files(self) -> None:
        """Raise unless every shard exists with its size and header.

        Raises
        ------
        DamagedStoreError
            Names the first damaged shard.
        """
        for entry in self.manifest.shards:
            problem = find_file_problem(self.path / entry.file, self.manifest)
            if problem:
                raise DamagedStoreError(f"{self.path / entry.file}: {problem}")

    def _shard_entry(self, machine: int) -> ShardEntry:
        if not isinstance(machine, Integral) or not 1 <= machine <= len(self.manifest.shards):
            raise InputError(
                f"machine {machine!r}: expected 1 to {len(self.manifest.shards)}, the machines of "
                f"{self.path}"
            )
        return self.manifest.shards[machine - 1]


def open_store(path: str | os.PathLike[str]) -> Store:
    """Open a store, and read its manifest.

    Raises
    ------
    StoreError
        The directory is not a store, this version cannot read it, or its encode was interrupted.
    DamagedStoreError
        The manifest was altered, is inconsistent, or is missing although its copy exists.
    """
    directory = as_path(path)
    manifest = read_manifest(directory)
    check_sizes(directory, manifest, must_exist=False)
    return Store(directory, manifest)
