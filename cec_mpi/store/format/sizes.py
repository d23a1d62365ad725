"""Whether a manifest can be believed, before memory is taken for what it says."""

from __future__ import annotations

from pathlib import Path

from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.format.array_files import with_copy
from cec_mpi.store.format.manifest import MANIFEST, Manifest

_FEW = 1 << 20  # blocks in all shards: what is kept of each of them takes no memory to speak of
_HEADER = 128  # bytes of a file of checksums


def check_sizes(directory: Path, manifest: Manifest, needed: bool = True) -> None:
    """Check that some file is as large as a manifest of many blocks says.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    needed : bool
        Refuse it also where there are no files: this process is going to read them.

    Raises
    ------
    DamagedStoreError
        Says what there is.
    """
    blocks = manifest.grid.count * manifest.code.machines
    if blocks <= _FEW:
        return
    expected = {shard.file: manifest.shard_bytes for shard in manifest.shards}
    expected |= dict.fromkeys(with_copy(manifest.checksums), _HEADER + 8 * blocks)
    found = {name: size for name in expected if (size := _size(directory / name)) is not None}
    if any(size == expected[name] for name, size in found.items()):
        return
    if found or needed:
        name = next(iter(found or expected))
        what = f"{found[name]} bytes" if found else "missing"
        raise DamagedStoreError(
            f"{directory / MANIFEST} is damaged: no file is as large as it says, {name} is {what}, "
            f"expected {expected[name]}"
        )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
