"""A shard in a file; blocks are verified on first read.

The file is opened once, so the mapped file is the verified one, even if its name is reused.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.files.durable import read_at
from cec_mpi.store.files.mapping import map_file
from cec_mpi.store.files.regular import ChangeDetector, raise_if_shortage
from cec_mpi.store.format.checksums import block_checksum, read_shard_checksums
from cec_mpi.store.format.shard_files import find_header_problem, open_checked
from cec_mpi.store.shard import Holding, Shard, Verification

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import Manifest


class FileShard(Shard):
    """The shard of one machine; rows are available after `load`.

    Parameters
    ----------
    path : Path
        The file.
    store : Path
    manifest : Manifest
    machine : int
    holding : {"mmap", "ram"}
        Whether rows are read through the page cache, or copied into memory of this process.
    verify : {"first-read", "never"}

    Attributes
    ----------
    path : Path
    row_count : int
        Number of rows, R.
    machine : int
    content : ndarray of uint8
        Bytes of the file; only loaded blocks are valid.

    Raises
    ------
    DamagedStoreError
        The file is missing, its size or header is wrong, or its checksums are damaged.
    ShortageError
        The process or the computer lacks a resource.
    """

    def __init__(
        self,
        path: Path,
        store: Path,
        manifest: Manifest,
        machine: int,
        holding: Holding,
        verify: Verification,
    ) -> None:
        self.path, self.machine, self.row_count = path, machine, manifest.rows_per_shard
        self._manifest = manifest
        self._repair_hint = (
            f" (cec-mpi repair {store} rebuilds damaged rows)"
            if path.parent == store
            else " (restart the machine to copy its shard from the store again)"
        )
        self._descriptor = open_checked(path, manifest, machine)
        weakref.finalize(self, os.close, self._descriptor)
        self._change_detector = ChangeDetector(self._descriptor)
        self._checksums = (
            None if verify == "never" else read_shard_checksums(store, manifest, machine)
        )
        self._is_in_memory = holding == "ram"
        is_ready = not self._is_in_memory and self._checksums is None
        self._is_loaded = bytearray([is_ready]) * manifest.block_count
        size = manifest.bytes_of(machine)
        self.content: NDArray[np.uint8]
        if self._is_in_memory:
            self.content = np.empty(size, np.uint8)  # the kernel allocates pages at the first write
        else:
            self.content = np.frombuffer(map_file(self._descriptor, size, path), np.uint8)
        self._buffer = np.empty(manifest.block_bytes, np.uint8)

    def array_at(self, offset: int, count: int, dtype: Any) -> NDArray[Any]:
        """Return an array at an offset of the file, without a copy."""
        return np.frombuffer(self.content, dtype, count, offset)

    def has_changed(self) -> bool:
        """Return whether loaded rows may have been overwritten; `load` then checks them again.

        This compares the size and times of the file. Rows in the memory of this process cannot
        change, and rows that are never verified are not checked again.

        Raises
        ------
        DamagedStoreError
            The size or header of the file has changed.
        """
        if self._is_in_memory or not self._change_detector.has_changed():
            return False
        problem = find_header_problem(self._descriptor, self._manifest, self.machine)
        if problem:
            raise DamagedStoreError(f"{self.path}: {problem}{self._repair_hint}")
        if self._checksums is None:
            return False
        self._is_loaded = bytearray(len(self._is_loaded))
        return True

    def load_blocks(self, blocks: Iterable[int]) -> int:
        """Load blocks that are not loaded yet, and verify them if `verify` requests it.

        Returns
        -------
        int
            Number of bytes that were read.

        Raises
        ------
        DamagedStoreError
            Rows were altered or truncated. The message names the shard and the rows.
        ShortageError
            The process or the computer lacks a resource.
        """
        total = 0
        for block in blocks:
            if self._is_loaded[block]:
                continue
            offset, size = self._manifest.block_extent(block, self.machine)
            data = (
                self.content[offset : offset + size] if self._is_in_memory else self._buffer[:size]
            )
            try:
                bytes_read = read_at(self._descriptor, data, offset)
            except OSError as error:
                raise_if_shortage(error, self.path)
                raise self.damage_error(block, f"are unreadable ({error.strerror})") from None
            if bytes_read < size:
                raise self.damage_error(block, "are truncated")
            if self._checksums is not None and block_checksum(data) != self._checksums[block]:
                raise self.damage_error(block, "do not match their checksum")
            self._transfer_block(block, data)
            self._is_loaded[block] = True
            total += size
        return total

    def _transfer_block(self, block: int, data: NDArray[np.uint8]) -> None:
        """Transfer the verified bytes of a block to a device, if the shard is on one."""

    def damage_error(self, block: int, problem: str) -> DamagedStoreError:
        """Return an error that names the rows of a block."""
        rows = self._manifest.describe_rows([block])
        return DamagedStoreError(f"{self.path}: {rows} {problem}{self._repair_hint}")
