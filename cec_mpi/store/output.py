"""Interface of outputs, which write the decoded X to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from cec_mpi.store.work import Runner


class Output(Protocol):
    """A file to which the decoded X is written.

    Attributes
    ----------
    path : Path
        File or directory to create.
    """

    path: Path

    def size(self, manifest: Any) -> int:
        """Return the bytes of disk space that writing needs at least, including temporary files."""

    def write(self, blocks: Any, partial: Path, memory: int, runner: Runner) -> float:
        """Decode X from the blocks of a store, and return a bound on its relative error.

        Parameters
        ----------
        blocks : Blocks
        partial : Path
            Name of the file or directory until it is complete.
        memory : int
            Bytes that each process may use in addition to the interpreter.
        runner : Runner

        Raises
        ------
        DamagedStoreError
            Blocks are lost or disagree.
        """
