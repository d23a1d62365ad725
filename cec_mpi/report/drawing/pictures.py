"""How pictures are made by matplotlib (the extra `plot`): one style, and the same bytes each time.

Pictures have a white ground of their own, so that they are read on light and on dark pages.
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
from cec_mpi.store.files.saving import storing
from cec_mpi.text import printable

SUFFIXES = (".svg", ".pdf", ".png")
# Of blocks, used again and again: light, since black letters stand on them, and different for the
# colour-blind (Paul Tol's light scheme).
BLOCKS = (
    "#77aadd",
    "#ee8866",
    "#eedd88",
    "#44bb99",
    "#ffaabb",
    "#bbcc33",
    "#99ddff",
    "#aaaa00",
)
STORED, FAINT, INK = "#e8ebee", "#59636e", "#1f2328"

_DOTS_PER_INCH = 200
_STYLE: Any = {
    "svg.hashsalt": "cec_mpi",
    "svg.fonttype": "none",  # words stay words
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
def style() -> Iterator[None]:
    """All that is drawn and saved within looks alike.

    Raises
    ------
    InputError
        There is no matplotlib.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise InputError("pictures need matplotlib: pip install 'cec_mpi[plot]'") from None
    with rc_context(_STYLE), warnings.catch_warnings():
        # Letters of any script may be in names, and a font has not all of them.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        yield


def saved(figure: Any, kind: str, title: str) -> bytes:
    """A figure as a file; the same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    kind : {"svg", "pdf", "png"}
    title : str
        What programs that do not show it say of it.
    """
    file = io.BytesIO()
    metadata = {"Title": printable(title), **_METADATA[kind]}
    figure.savefig(file, format=kind, dpi=_DOTS_PER_INCH, metadata=metadata)
    return file.getvalue()


def write_picture(figure: Any, name: str, title: str) -> None:
    """Write a file in the place of another at once.

    Raises
    ------
    InputError
        It cannot be written.
    """
    path = as_path(name)
    with storing(path):
        if path.exists() and not path.is_file():
            raise InputError(f"{name} is there and no file: expected the name of a file")
        if not path.parent.is_dir():
            raise InputError(f"{name} cannot be written: there is no directory {path.parent}")
        publish(path, saved(figure, path.suffix.lower()[1:], title))


def check_suffix(name: str) -> None:
    """Refuse a name that does not say what the picture is to be."""
    if Path(name).suffix.lower() not in SUFFIXES:
        expected = " or ".join([", ".join(SUFFIXES[:-1]), SUFFIXES[-1]])
        raise InputError(f"picture {name!r}: expected a name in {expected}")
