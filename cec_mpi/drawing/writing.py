"""A scene in a file, whose name says as what."""

from __future__ import annotations

from pathlib import Path

from cec_mpi.drawing.printed import printed
from cec_mpi.drawing.scene import Scene
from cec_mpi.drawing.svg import svg
from cec_mpi.errors import InputError
from cec_mpi.files.durable import publish
from cec_mpi.files.saving import storing

SUFFIXES = (".svg", ".pdf", ".png")


def write_scene(scene: Scene, name: str) -> None:
    """Write a file in the place of another at once.

    Raises
    ------
    InputError
        Its name does not say what it is, matplotlib is missing, or it cannot be written.
    """
    path = Path(name)
    check_suffix(name)
    suffix = path.suffix.lower()
    with storing(path):
        if path.exists() and not path.is_file():
            raise InputError(f"{name} is there and no file: expected the name of a file")
        if not path.parent.is_dir():
            raise InputError(f"{name} cannot be written: there is no directory {path.parent}")
        data = svg(scene).encode() if suffix == ".svg" else printed(scene, suffix[1:])
        publish(path, data)


def check_suffix(name: str) -> None:
    """Refuse a name that does not say what the picture is to be."""
    if Path(name).suffix.lower() not in SUFFIXES:
        expected = " or ".join([", ".join(SUFFIXES[:-1]), SUFFIXES[-1]])
        raise InputError(f"picture {name!r}: expected a name in {expected}")
