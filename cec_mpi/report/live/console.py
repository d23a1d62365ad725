"""Consoles of rich for terminals that may disappear."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from shutil import get_terminal_size
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType, RenderResult

from cec_mpi.terminal import drop

_ALL_AS_IT_IS: dict[str, Any] = {
    "markup": False,
    "highlight": False,
    "emoji": False,
    "legacy_windows": False,
}


def console_on(stream: TextIO) -> Console:
    """Return a console; a terminal that disappears raises no error."""
    return _Console(file=cast(TextIO, _Lasting(stream)), soft_wrap=True, **_ALL_AS_IT_IS)


class _Console(Console):
    """As large as the terminal of its stream, with a cursor that stays to be seen.

    A process that is killed could not bring it back.
    """

    @property  # type: ignore[misc]  # rich's can be set, which nobody does here
    def size(self) -> ConsoleDimensions:
        try:
            found = os.get_terminal_size(self.file.fileno())
        except (OSError, ValueError):
            found = os.terminal_size((0, 0))
        usual = get_terminal_size((80, 24))
        return ConsoleDimensions(found.columns or usual.columns, found.lines or usual.lines)

    def show_cursor(self, show: bool = True) -> bool:
        return False


class _Lasting:
    """A stream that ignores what is written after its terminal has disappeared."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        encoding = self._stream.encoding or "ascii"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        except (OSError, ValueError):
            drop(self._stream)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            drop(self._stream)

    def __getattr__(self, name: str) -> Any:  # encoding, isatty, fileno
        return getattr(self._stream, name)


def rendered(
    lines: Iterable[RenderableType], width: int, encoding: str, is_terminal: bool = True
) -> str:
    """Return the text of renderables, in lines of at most so many columns.

    Parameters
    ----------
    lines : iterable
    width : int
        Columns.
    encoding : str
        Of the stream.
    is_terminal : bool
        With styles.
    """
    width = max(1, width)
    console = Console(
        file=io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace"),
        force_terminal=is_terminal,
        width=width,
        **_ALL_AS_IT_IS,
    )
    with console.capture() as captured:
        console.print(Cut(lines))
    return captured.get().encode(encoding, "replace").decode(encoding)


class Cut:
    """Renderables, each in a line; a line that is cut ends with an ellipsis."""

    def __init__(self, lines: Iterable[RenderableType]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        overflow: Any = "crop" if options.ascii_only else "ellipsis"
        for line in self._lines:
            yield from console.render(line, options.update(no_wrap=True, overflow=overflow))
