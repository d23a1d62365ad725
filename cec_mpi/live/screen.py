"""Lines that stand where a terminal's next line would be, and are drawn anew in their place.

Whatever else this process prints takes their place, and they come back below it. Each drawing
begins with a cursor that goes up and ends with its line, so that launchers hand it on whole and
that whatever ends this process leaves the terminal as it should be.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from cec_mpi.live.ways import Terminal
from cec_mpi.terminal import drop

_READING_SECONDS = 0.05  # that a launcher has before the next pipe: it reads two in any order
_SILENCE_SECONDS = 0.25  # after what came by the other pipe, for the same reason


class Screen:
    """Within a ``with``, lines that stand on a terminal.

    Parameters
    ----------
    terminal : Terminal
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._stream: TextIO = sys.stderr
        self._encoding = getattr(sys.stderr, "encoding", None) or "ascii"
        self._lock = threading.RLock()
        self._height = 0  # lines that stand there
        self._is_within_line = False  # of something else
        self._silent_until = 0.0
        self._process = os.getpid()
        self._around: dict[str, _Around] = {}

    @property
    def is_plain(self) -> bool:
        """Whether there are no letters but those of ASCII."""
        return is_plain(self._encoding)

    def __enter__(self) -> Screen:
        for name in ("stderr", "stdout") if self._terminal.shows_output else ("stderr",):
            around = self._around[name] = _Around(getattr(sys, name), self)
            setattr(sys, name, around)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.clear() and self._terminal.owner is not None:
            time.sleep(_READING_SECONDS)
        for name, around in self._around.items():
            if getattr(sys, name) is around:
                setattr(sys, name, around.stream)
        self._process = 0  # who has kept a stream goes on with what it stood for

    def draw(self, lines: Iterable[RenderableType]) -> None:
        """Put lines in the place of those that stand there; they are cut where they are too long.

        Nothing is drawn while something else has begun a line.
        """
        with self._lock:
            if self._is_within_line or time.monotonic() < self._silent_until:
                return
            width, height = self._terminal.size
            text = rendered(lines, width - 1, self._encoding)
            shown = text.splitlines(keepends=True)[: max(1, height - 1)]
            self._write(self._upwards() + "".join(shown))
            self._height = len(shown)

    def clear(self) -> bool:
        """Take the lines away; returns whether there were any."""
        with self._lock:
            if not self._height:
                return False
            # A launcher waits for the end of a line: of the one further up.
            end = "" if self._terminal.owner is None else "\x1b[1A\n"
            self._write(self._upwards() + end)
            self._height = 0
            return True

    def make_room(self, stream: TextIO) -> None:
        """Something else is about to be written to this stream."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self.clear() and self._crosses(stream):
                time.sleep(_READING_SECONDS)

    def write(self, stream: TextIO, text: str) -> int:
        """Write something else to this stream, in the place of these lines."""
        if os.getpid() != self._process:  # one that was forked, perhaps while this was locked
            return stream.write(text)
        with self._lock:
            self.make_room(stream)
            written = stream.write(text)
            if text:
                self._is_within_line = not text.endswith("\n")
                if self._crosses(stream):
                    self._silent_until = time.monotonic() + _SILENCE_SECONDS
                    if not self._is_within_line:
                        stream.flush()
            return written

    def _crosses(self, stream: TextIO) -> bool:
        """Whether a stream comes to the terminal by another pipe than these lines."""
        return self._terminal.owner is not None and stream is not self._stream

    def _upwards(self) -> str:
        return f"\x1b[{self._height}A\r\x1b[J" if self._height else ""

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            drop(self._stream)


def is_plain(encoding: str) -> bool:
    """Whether an encoding has no letters but those of ASCII, as far as is known."""
    return not encoding.lower().startswith("utf")


def rendered(
    lines: Iterable[RenderableType], width: int, encoding: str, is_terminal: bool = True
) -> str:
    """What is to be written: each of these in lines of at most so many columns.

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
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(Cut(lines))
    return captured.get().encode(encoding, "replace").decode(encoding)


class Cut:
    """These, each in a line of its own, with an end that says so where it is cut off."""

    def __init__(self, lines: Iterable[RenderableType]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        overflow: Any = "crop" if options.ascii_only else "ellipsis"
        for line in self._lines:
            yield from console.render(line, options.update(no_wrap=True, overflow=overflow))


class _Around:
    """A stream that has the lines of a screen make room for what is written to it."""

    def __init__(self, stream: TextIO, screen: Screen) -> None:
        self.stream = stream
        self._screen = screen

    def write(self, text: str) -> int:
        """Write once there is room."""
        return self._screen.write(self.stream, text)

    def writelines(self, texts: Iterable[str]) -> None:
        """Write these."""
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            self._screen.make_room(self.stream)
        return getattr(self.stream, name)
