"""Fields of steps as arrays, each checked while it becomes one.

What may stand in a field is what `cec_mpi.records.reading` says of it, and a record that it refuses
is refused here: numbers are of the types that the hints of a step name, and within their bounds.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from cec_mpi.records.step import HINTS, MOST, MOST_MACHINES, Seconds, Within

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NUMBERS = (
    "step",
    "tick",
    "waited_ticks",
    "store",
    "adjoint",
    "columns",
    "predicted_makespan",
    "measured_makespan",
    "bound",
    "hindsight_makespan",
    "announce_seconds",
    "share_seconds",
    "collect_seconds",
    "decode_seconds",
    "plan_changed",
    "condition",
    "error_bound",
    "error_estimate",
)
"""Fields of a step that are numbers; null is NaN."""


class OddError(Exception):
    """Something is not what a run writes, as far as can be seen here."""


ODD = (OddError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What is raised where something is odd."""


def _types(hint: Any) -> frozenset[type]:
    """What a field is when it has been parsed."""
    if get_origin(hint) is Annotated:
        return frozenset((int, float))
    if get_origin(hint) in (Union, UnionType):
        return frozenset().union(*map(_types, get_args(hint)))
    origin = get_origin(hint) or hint
    return frozenset([list if origin is tuple else origin])


def _within(hint: Any) -> tuple[float, float]:
    """Between which numbers a field lies if it is not 0."""
    if get_origin(hint) is Annotated:
        within: Within = get_args(hint)[1]
        return within.least, within.most
    return _within(get_args(hint)[0]) if get_args(hint) else (1, MOST - 1)


_TYPES = {name: _types(hint) for name, hint in HINTS.items()}
_BOUNDS = np.array([_within(HINTS[name]) for name in NUMBERS]).T[:, :, np.newaxis]
_SECONDS: Within = get_args(Seconds)[1]


def check_types(content: dict[str, Any]) -> None:
    """That fields are of the types that a step has.

    Raises
    ------
    OddError
        One is of another type.
    """
    for name in _TYPES.keys() & content.keys():
        if type(content[name]) not in _TYPES[name]:
            raise OddError("it has something else where a field of a step is")


def check_numbers(table: Floats) -> None:
    """That numbers are within their bounds.

    Parameters
    ----------
    table : (F, K) ndarray
        A line for each of `NUMBERS`; NaN for null, -inf for what is not known.

    Raises
    ------
    OddError
        One is not.
    """
    right = (table >= _BOUNDS[0]) & (table <= _BOUNDS[1])
    if not (right | (table == 0) | np.isnan(table) | (table == -np.inf)).all():
        raise OddError("it has a number that can be none")


def check_seconds(seconds: Floats) -> None:
    """That each is a time.

    Raises
    ------
    OddError
        One is not.
    """
    if not len(seconds):
        return
    least = seconds.min()
    if least < _SECONDS.least:  # some are 0, or odd
        least = np.min(seconds, where=seconds != 0, initial=np.inf)
    if not (least >= _SECONDS.least and seconds.max() <= _SECONDS.most):
        raise OddError("it has seconds that can be none")


@dataclass(frozen=True, eq=False, slots=True)
class Bounds:
    """An assignment: the bounds of the intervals of machines 1..N, one after the other.

    Attributes
    ----------
    bounds : (B,) ndarray
    ends : (N,) ndarray
        Where those of each machine end.
    """

    bounds: Ints
    ends: Ints

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bounds):
            return NotImplemented
        return np.array_equal(self.ends, other.ends) and np.array_equal(self.bounds, other.bounds)

    __hash__ = None  # type: ignore[assignment]

    def lists(self) -> list[list[int]]:
        """As they are recorded."""
        bounds, ends = self.bounds.tolist(), self.ends.tolist()
        return [bounds[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def loads(self) -> Ints:
        """Rows of each machine."""
        sums = np.concatenate(([0], np.cumsum(self.bounds[1::2] - self.bounds[::2])))
        return np.diff(sums[self.ends // 2], prepend=0)

    @property
    def rows(self) -> int:
        """Up to which row it goes."""
        return int(self.bounds.max(initial=0))


def _wholes(found: Any, doubtful: bool) -> Ints:
    numbers = np.array(_array("q", found, doubtful), np.int64)
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < MOST):
        raise OddError("it has a number that can be none")
    return numbers


def _seconds(found: Any, doubtful: bool) -> Floats:
    seconds = np.array(_array("d", found, doubtful))
    check_seconds(seconds)
    return seconds


def _array(code: str, found: Any, doubtful: bool) -> array[Any]:
    """Of whole numbers, or of any; `doubtful` where true or false may be among them."""
    if doubtful and bool in map(type, found):
        raise OddError("it has something else where a number is")
    return array(code, found)


def _bounds(found: Any, doubtful: bool) -> Bounds:
    if not {list}.issuperset(map(type, found)):
        raise OddError("it has something else where lists of bounds are")
    bounds = _wholes(list(chain.from_iterable(found)), doubtful)
    ends = np.cumsum(np.fromiter(map(len, found), np.int64, len(found)))
    rises = bounds[1:] > bounds[:-1]
    rises[ends[(ends > 0) & (ends < len(bounds))] - 1] = True  # where another machine begins
    if not rises.all() or (ends % 2).any():
        raise OddError("it has bounds that are not ascending, or intervals without an end")
    return Bounds(bounds, ends)


def _sizes(found: Any, doubtful: bool) -> int:
    return sum(_wholes(list(found.values()), doubtful).tolist())


def _events(found: list[dict[str, Any]], doubtful: bool) -> list[dict[str, Any]]:
    if not {dict}.issuperset(map(type, found)):
        raise OddError("it has something else where events are")
    return found


LISTED: dict[str, Callable[[Any, bool], Any]] = {
    "rows": _wholes,
    "available": _wholes,
    "load_seconds": _seconds,
    "load_bytes": _wholes,
    "assignment": _bounds,
    "bytes": _sizes,
    "events": _events,
}
"""Makes other fields of a step what a report counts with; ``bytes`` are their sum."""


def check_machines(step: dict[str, Any], machines: int) -> None:
    """That the lists of a step have an entry for each machine.

    Raises
    ------
    OddError
        They do not, or another machine is available.
    """
    lengths = {len(step[name]) for name in ("rows", "load_seconds", "load_bytes")}
    available = step["available"]
    if lengths | {len(step["assignment"].ends)} != {machines}:
        raise OddError("its lists differ in length")
    if not 0 < machines <= MOST_MACHINES:
        raise OddError("it has too many machines, or none")
    seen = np.zeros(machines + 1, np.bool_)
    seen[available[available <= machines]] = True
    if seen[0] or seen.sum() != len(available):
        raise OddError("it has machines that there are not")
