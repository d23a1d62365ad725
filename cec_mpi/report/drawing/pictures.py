"""Pictures drawn with matplotlib (the extra `plot`), in one style and with reproducible bytes.

They have a white background, for light and dark pages.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.store.files.durable import publish
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.saving import convert_to_input_error
from cec_mpi.text import printable

SUFFIXES = (".svg", ".pdf", ".png")
# Colours of blocks, reused cyclically: light enough for black letters, and distinct for the
# colour-blind (Paul Tol's light scheme).
BLOCK_COLOURS = (
    "#77aadd",
    "#ee8866",
    "#eedd88",
    "#44bb99",
    "#ffaabb",
    "#bbcc33",
    "#99ddff",
    "#aaaa00",
)
LIGHT_GREY, GREY, INK = "#e8ebee", "#59636e", "#1f2328"

_DOTS_PER_INCH = 200
_STYLE: Any = {
    "svg.hashsalt": "cec_mpi",
    "svg.fonttype": "none",  # keep text as text
    "text.parse_math": False,
    "text.color": INK,
    "font.size": 9.0,
    "figure.labelsize": "medium",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "legend.frameon": False,
}
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "cec_mpi"},
    "pdf": {"CreationDate": None, "Creator": "cec_mpi", "Producer": None},
    "png": {"Software": None},
}


@contextmanager
def picture_style() -> Iterator[None]:
    """Draw and save pictures in one style within this context.

    Raises
    ------
    InputError
        matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise InputError("pictures need matplotlib: pip install 'cec_mpi[plot]'") from None
    with rc_context(_STYLE), warnings.catch_warnings():
        # Names may contain characters that the font lacks.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        yield


def render_figure(figure: Any, kind: str, title: str) -> bytes:
    """Return a figure as the bytes of a file; equal figures give equal bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    kind : {"svg", "pdf", "png"}
    title : str
        Title in the metadata of the file.
    """
    file = io.BytesIO()
    metadata = {"Title": printable(title), **_METADATA[kind]}
    figure.savefig(file, format=kind, dpi=_DOTS_PER_INCH, metadata=metadata)
    return file.getvalue()


def write_picture(figure: Any, name: str, title: str) -> None:
    """Write a figure to a file atomically; an earlier file is replaced.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    path = as_path(name)
    with convert_to_input_error(path):
        if path.exists() and not path.is_file():
            raise InputError(f"{name} is not a regular file: expected a file or a new name")
        if not path.parent.is_dir():
            raise InputError(f"{name} cannot be written: no directory {path.parent} exists")
        publish(path, render_figure(figure, path.suffix.lower()[1:], title))


def check_suffix(name: str) -> None:
    """Raise `InputError` unless a file name has the suffix of a supported format."""
    if Path(name).suffix.lower() not in SUFFIXES:
        expected = " or ".join([", ".join(SUFFIXES[:-1]), SUFFIXES[-1]])
        raise InputError(f"picture {name!r}: expected a name that ends in {expected}")
