"""Raise KeyboardInterrupt at a chosen line, or where Python runs signal handlers."""

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
        Excludes modules whose paths end with this.

    Returns
    -------
    bool
        False if the function ended first.
    """
    remaining = index

    def trace_call(frame: FrameType, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        return trace_line if folder in path and not (exclude and path.endswith(exclude)) else None

    def trace_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal remaining
        if event == "line":
            remaining -= 1
            if remaining < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace_line

    previous = sys.gettrace()
    sys.settrace(trace_call)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(previous)
    return False


def interrupt_between_calls(index: int, cls: type, function: Callable[[], object]) -> bool:
    """Call a function and raise KeyboardInterrupt where Python runs signal handlers.

    Python runs signal handlers when a function begins or returns, and at the end of an iteration.

    Parameters
    ----------
    index : int
        Index in the sequence of these points in the module of `cls` and in functions that it calls.
    cls : type
    function : callable

    Returns
    -------
    bool
        False if the function ended first.
    """
    remaining, module = index, inspect.getfile(cls)

    def count_down(frame: FrameType) -> None:
        nonlocal remaining
        if any(f and f.f_code.co_filename == module for f in (frame, frame.f_back)):
            remaining -= 1
            if remaining < 0:
                sys.settrace(None)
                sys.setprofile(None)
                raise KeyboardInterrupt

    def profile_call(frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "return", "c_return"):
            count_down(frame)

    def trace_call(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        return trace_opcode

    def trace_opcode(frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            operation = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if operation.startswith("JUMP_BACKWARD"):
                count_down(frame)
        return trace_opcode

    previous = sys.gettrace(), sys.getprofile()
    sys.settrace(trace_call)
    sys.setprofile(profile_call)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(previous[0])
        sys.setprofile(previous[1])
    return False
