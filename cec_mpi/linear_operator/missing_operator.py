"""Whether an exception comes of the None that a machine has where rank 0 has X."""

from __future__ import annotations

import dis
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

_KINDS = (AttributeError, TypeError, ValueError)  # that None brings about; NumPy raises the last


class Entered(NamedTuple):
    """Where a ``with`` was entered: what it executes, and how far it had come."""

    code: CodeType
    place: int

    @classmethod
    def by(cls, frame: FrameType) -> Entered:
        """By the code of this frame, just now."""
        return cls(frame.f_code, frame.f_lasti)

    @property
    def name(self) -> str:
        """The variable that gets what was entered; empty where none does."""
        for instruction in dis.get_instructions(self.code):
            if instruction.offset > self.place:
                stores = instruction.opname.startswith("STORE_") and instruction.argval
                return str(stores[0] if isinstance(stores, tuple) else stores or "")
        return ""


def comes_of_none(error: BaseException, trace: TracebackType | None, entered: Entered) -> bool:
    """Whether an exception that left the ``with`` was raised because of a None in it.

    It names the type of None; or what failed is in an expression with the variable of the
    ``with``, and where it failed there was a None too.
    """
    if not isinstance(error, _KINDS) or trace is None:
        return False
    if isinstance(error, AttributeError | TypeError) and "NoneType" in str(error):
        return True
    if trace.tb_frame.f_code is not entered.code or not _uses(trace, entered.name):
        return False
    last = trace
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    parameters = code.co_varnames[: code.co_argcount]
    return last is trace or any(last.tb_frame.f_locals.get(name, 0) is None for name in parameters)


def _uses(trace: TracebackType, name: str) -> bool:
    """Whether the expression at which an exception came has a variable."""
    first, last, begin, end = list(trace.tb_frame.f_code.co_positions())[trace.tb_lasti // 2]
    if None in (first, last, begin, end):
        return False
    for instruction in dis.get_instructions(trace.tb_frame.f_code):
        found = instruction.positions
        names = instruction.argval if isinstance(instruction.argval, tuple) else ()
        if found is None or found.lineno is None or name not in (instruction.argval, *names):
            continue
        if (first, begin) <= (found.lineno, found.col_offset) and (
            (found.end_lineno, found.end_col_offset) <= (last, end)
        ):
            return True
    return False
