"""Output of a sparse X in the format of `scipy.sparse.load_npz`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.store.blocks import Blocks
from cec_mpi.store.files.npy import npy_header
from cec_mpi.store.replicas.layout import INDICES, POINTERS, VALUES
from cec_mpi.store.replicas.manifest import ReplicaManifest
from cec_mpi.store.work import Runner


class NpzOutput:
    """A sparse X in an ``.npz`` file; see `Output`."""

    def __init__(self, path: Path, delimiter: str | None = None) -> None:
        if path.suffix.lower() != ".npz":
            raise InputError(
                f"{path}: X is sparse, and can only be written for scipy.sparse.load_npz: expected "
                ".npz"
            )
        if delimiter is not None:
            raise InputError(f"delimiter is only for text tables, not for {path}")
        self.path = path

    def size(self, manifest: ReplicaManifest) -> int:
        """See `Output.size`."""
        return int(manifest.layout.sizes.sum())

    def write(
        self, blocks: Blocks[ReplicaManifest], partial: Path, memory: int, runner: Runner
    ) -> float:
        """See `Output.write`; this process reads all parts in order."""
        manifest = blocks.manifest
        layout, nonzeros = manifest.layout, manifest.nonzeros
        with zipfile.ZipFile(partial, "x", allowZip64=True) as file:
            for name, section, section_dtype in (
                ("data", VALUES, layout.dtype),
                ("indices", INDICES, layout.index_dtype),
            ):
                with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                    member.write(npy_header((nonzeros,), np.dtype(section_dtype)))
                    for data in _read_sections(blocks, section):
                        member.write(data.data)
            with file.open("indptr.npy", "w", force_zip64=True) as member:
                dtype = np.dtype("int64" if nonzeros >= 2**31 else layout.index_dtype)
                member.write(npy_header((manifest.rows + 1,), dtype))
                member.write(np.zeros(1, dtype).data)
                for first, data in zip(
                    layout.first_entries, _read_sections(blocks, POINTERS), strict=False
                ):
                    pointers = data.view(layout.index_dtype)[1:].astype(dtype) + dtype.type(first)
                    member.write(pointers.data)
            for name, array in (
                ("format", np.array(b"csr")),
                ("shape", np.array([manifest.rows, manifest.columns])),
                ("_is_array", np.array(True)),
            ):
                with file.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        return 0.0


def _read_sections(blocks: Blocks[ReplicaManifest], section: int) -> Iterator[NDArray[np.uint8]]:
    """Read this section of each part, and yield its bytes."""
    layout = blocks.manifest.layout
    for part, size in enumerate(layout.sizes[:, section].tolist()):
        data = np.empty(size, np.uint8)
        for block in layout.overlapping_blocks(part, section, 0, size):
            contents = blocks.read(block.number)
            if not contents:
                problem = blocks.manifest.describe_lost([block.number])
                raise DamagedStoreError(f"{blocks.directory} cannot be decoded: {problem}")
            (data[block.start : block.stop],) = contents.values()
        yield data
