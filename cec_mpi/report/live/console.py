"""Rich consoles that survive the loss of their terminal."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from shutil import get_terminal_size
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType, RenderResult

from cec_mpi.text.terminal import discard_output

PLAIN_TEXT: dict[str, Any] = {
    "markup": False,
    "highlight": False,
    "emoji": False,
    "legacy_windows": False,
}


def safe_console(stream: TextIO) -> Console:
    """Return a console that does not raise if the terminal of its stream is lost."""
    return _Console(file=cast(TextIO, _SafeStream(stream)), soft_wrap=True, **PLAIN_TEXT)


class _Console(Console):
    """A console that never hides the cursor, because a killed process could not show it again."""

    @property  # type: ignore[misc]  # rich's property has a setter
    def size(self) -> ConsoleDimensions:
        try:
            size = os.get_terminal_size(self.file.fileno())
        except (OSError, ValueError):
            size = os.terminal_size((0, 0))
        default = get_terminal_size((80, 24))
        return ConsoleDimensions(size.columns or default.columns, size.lines or default.lines)

    def show_cursor(self, show: bool = True) -> bool:
        return False


class _SafeStream:
    """A text stream that discards output after its terminal is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        encoding = self._stream.encoding or "ascii"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        except (OSError, ValueError):
            discard_output(self._stream)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            discard_output(self._stream)

    def __getattr__(self, name: str) -> Any:  # encoding, isatty, fileno
        return getattr(self._stream, name)


def render_lines(
    lines: Iterable[RenderableType], width: int, encoding: str, with_styles: bool = True
) -> str:
    """Render lines as text of at most `width` columns.

    Parameters
    ----------
    lines : iterable
    width : int
    encoding : str
        Encoding of the stream.
    with_styles : bool
        Whether to include styles.
    """
    width = max(1, width)
    console = Console(
        file=io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace"),
        force_terminal=with_styles,
        width=width,
        **PLAIN_TEXT,
    )
    with console.capture() as captured:
        console.print(TruncatedLines(lines))
    return captured.get().encode(encoding, "replace").decode(encoding)


class TruncatedLines:
    """Lines that are truncated with an ellipsis."""

    def __init__(self, lines: Iterable[RenderableType]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        overflow: Any = "crop" if options.ascii_only else "ellipsis"
        for line in self._lines:
            yield from console.render(line, options.update(no_wrap=True, overflow=overflow))
