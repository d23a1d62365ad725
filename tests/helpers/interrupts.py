"""Ctrl-C at a chosen moment: as a line of the package begins, or where Python sees to signals."""

import dis
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def interrupted(place: int, folder: str, function: Callable[[], object], but: str = "") -> bool:
    """Call a function, and raise KeyboardInterrupt before the line of this place.

    Parameters
    ----------
    place : int
        Counted from 0, over all lines of modules in `folder` that the call comes to.
    folder : str
        Part of their paths.
    function : callable
    but : str, optional
        Leaves out modules whose paths end so.

    Returns
    -------
    bool
        Whether it was interrupted; else it came to its end before.
    """
    left = place

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        return look if folder in path and not (but and path.endswith(but)) else None

    def look(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
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


def interrupted_between(place: int, part: type, function: Callable[[], object]) -> bool:
    """Call a function, and raise KeyboardInterrupt at this of the moments when Python may.

    It runs handlers of signals when a function begins, when one has returned, and when a loop
    goes back, and nowhere else.

    Parameters
    ----------
    place : int
        Counted from 0, over all such moments in the module of a class and in what that calls.
    part : type
    function : callable

    Returns
    -------
    bool
        Whether it was interrupted; else it came to its end before.
    """
    left, module = place, inspect.getfile(part)

    def reach(frame: FrameType) -> None:
        nonlocal left
        if any(each and each.f_code.co_filename == module for each in (frame, frame.f_back)):
            left -= 1
            if left < 0:
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
