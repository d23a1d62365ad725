"""Ctrl-C at a chosen line of the package, or where Python runs handlers of signals."""

import dis
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def interrupt_at_line(
    index: int, folder: str, function: Callable[[], object], exclude: str = ""
) -> bool:
    """Call a function and raise KeyboardInterrupt before a line.

    Parameters
    ----------
    index : int
        Index of the line in the sequence of executed lines of modules in `folder`.
    folder : str
        Part of the paths of these modules.
    function : callable
    exclude : str, optional
        Excludes modules whose paths have this end.

    Returns
    -------
    bool
        False if the function ended before.
    """
    remaining = index

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        return look if folder in path and not (exclude and path.endswith(exclude)) else None

    def look(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal remaining
        if event == "line":
            remaining -= 1
            if remaining < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return look

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def interrupt_between_calls(index: int, part: type, function: Callable[[], object]) -> bool:
    """Call a function and raise KeyboardInterrupt where Python runs handlers of signals.

    Python runs them when a function begins or has returned, and at the end of an iteration.

    Parameters
    ----------
    index : int
        Index in the sequence of these points in the module of a class and in functions it calls.
    part : type
        The class.
    function : callable

    Returns
    -------
    bool
        False if the function ended before.
    """
    remaining, module = index, inspect.getfile(part)

    def reach(frame: FrameType) -> None:
        nonlocal remaining
        if any(f and f.f_code.co_filename == module for f in (frame, frame.f_back)):
            remaining -= 1
            if remaining < 0:
                sys.settrace(None)
                sys.setprofile(None)
                raise KeyboardInterrupt

    def pass_calls(frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "return", "c_return"):
            reach(frame)

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        return pass_jumps

    def pass_jumps(frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            operation = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if operation.startswith("JUMP_BACKWARD"):
                reach(frame)
        return pass_jumps

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(enter)
    sys.setprofile(pass_calls)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return False
