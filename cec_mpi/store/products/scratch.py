"""Arrays that are kept from product to product, so that none allocates."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Scratch(threading.local):
    """Arrays that a thread keeps from product to product."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, np.dtype[Any]], NDArray[Any]] = {}

    def of(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The array of this name, of this shape and dtype; what it had is lost."""
        size = math.prod(shape)
        room = self._arrays.get((name, dtype))
        if room is None or room.size < size:
            room = self._arrays[name, dtype] = np.empty(size, dtype)
        return room[:size].reshape(shape)
