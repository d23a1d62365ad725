"""A terminal as standard output and error of this process."""

from __future__ import annotations

import os
import sys

import pytest

from helpers.terminals import Terminal


@pytest.fixture
def open_terminal(monkeypatch, no_launcher):
    """Return a function that replaces standard output and error by a terminal, and returns it."""
    terminals, streams = [], []

    def open_terminal(columns=80, lines=24, encoding="utf-8"):
        terminal = Terminal(columns, lines)
        terminals.append(terminal)
        for name in ("stdout", "stderr"):
            # Two streams as Python opens them on a terminal.
            stream = os.fdopen(os.dup(terminal.tty), "w", buffering=1, encoding=encoding)
            streams.append(stream)
            monkeypatch.setattr(sys, name, stream)
        monkeypatch.setenv("TERM", "xterm-256color")
        for variable in ("NO_COLOR", "FORCE_COLOR", "JPY_PARENT_PID", "COLUMNS", "LINES"):
            monkeypatch.delenv(variable, raising=False)
        return terminal

    yield open_terminal
    monkeypatch.undo()
    for stream in streams:
        stream.close()
    for terminal in terminals:
        terminal.close()
