"""Ctrl-C at a chosen moment: as a line of the package begins."""

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
