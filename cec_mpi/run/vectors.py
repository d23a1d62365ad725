"""The vectors that ``matvec`` multiplies X with, as a file that a run reads as it goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.files.npy import open_npy
from cec_mpi.store.format.manifest import Manifest


def read_vectors(path: str | None, manifest: Manifest, steps: int | None) -> NDArray[Any]:
    """The vectors of ``matvec``, memory-mapped.

    Raises
    ------
    InputError
        The file is none of vectors for this store, or one of them is not finite.
    """
    from cec_mpi.store.sources.finite import check_finite

    columns = manifest.columns
    if path is None:
        raise InputError("task matvec needs --vectors W.npy")
    vectors = open_npy(Path(path))
    if vectors.ndim != 2 or vectors.shape[1] != columns or not len(vectors):
        raise InputError(f"{path} has shape {vectors.shape}: expected (T, {columns}), T at least 1")
    check_finite(Path(path), len(vectors) if steps is None else steps)
    return vectors


@dataclass(frozen=True)
class WatchedVectors:
    """A file of vectors that a run reads as it goes: it may not be written to meanwhile.

    What takes its name does no harm: the run has the file that it has opened.

    Attributes
    ----------
    path : Path
    number, size, written : int
        Of its inode, in bytes, and when, as it was at first.
    """

    path: Path
    number: int
    size: int
    written: int

    @classmethod
    def at(cls, path: str | None) -> WatchedVectors | None:
        """The file as it is now; None where there is none, as whoever opens it says."""
        try:
            status = Path(path or "").stat()
        except (OSError, ValueError):
            return None
        return cls(Path(path or ""), status.st_ino, status.st_size, status.st_mtime_ns)

    def check(self) -> None:
        """Refuse to go on with other vectors than the run began with.

        Raises
        ------
        InputError
            It was written to.
        """
        try:
            now = self.path.stat()
        except OSError:  # it has lost its name, and is there still
            return
        if now.st_ino == self.number and (now.st_size, now.st_mtime_ns) != (
            self.size,
            self.written,
        ):
            raise InputError(
                f"{self.path} was written to while the run read it: expected the vectors that it "
                "began with; --resume goes on when they are there again"
            )
