"""Reusable work arrays."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Scratch(threading.local):
    """Work arrays that each thread reuses, because allocation is slow.

    Parameters
    ----------
    allocate : callable
        Returns an array of a given size and dtype.
    """

    def __init__(self, allocate: Callable[[int, np.dtype[Any]], NDArray[Any]] = np.empty) -> None:
        self._allocate = allocate
        self._arrays: dict[tuple[str, np.dtype[Any]], NDArray[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the array of this name with a shape and dtype; its content is undefined."""
        size = math.prod(shape)
        array = self._arrays.get((name, dtype))
        if array is None or array.size < size:
            array = self._arrays[name, dtype] = self._allocate(size, dtype)
        return array[:size].reshape(shape)
