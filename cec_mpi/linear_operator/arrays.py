"""Arrays of torch, CuPy and JAX as factors of products."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray


def accept_device_arrays(product: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Decorate a product, so that its result has the library and the device of its factor.

    The product is computed with NumPy arrays. Without ``array-api-compat``, NumPy converts the
    factor, and the result is a NumPy array.
    """

    @wraps(product)
    def product_on_device(operator: Any, factor: Any) -> Any:
        if not _is_device_array(factor):
            return product(operator, factor)
        result = product(operator, _to_numpy(factor))
        return _to_device_of(result, factor) if isinstance(result, np.ndarray) else result

    return product_on_device


def _is_device_array(factor: Any) -> bool:
    if isinstance(factor, np.ndarray | np.generic) or not hasattr(factor, "__dlpack__"):
        return False
    if find_spec("array_api_compat") is None:
        return False
    from array_api_compat import is_array_api_obj

    return bool(is_array_api_obj(factor))


def _to_numpy(factor: Any) -> NDArray[Any]:
    """Return an array in main memory, without a copy if it is already there."""
    from array_api_compat import is_cupy_array, is_torch_array

    if is_cupy_array(factor):
        factor = factor.get()
    elif is_torch_array(factor):
        factor = factor.detach().cpu().numpy()
    return np.asarray(factor)


def _to_device_of(result: NDArray[Any], factor: Any) -> Any:
    """Return a result on the device of a factor, in float32 if the device lacks float64."""
    from array_api_compat import array_namespace, device

    target_device = device(factor)
    if str(target_device).startswith("mps"):
        result = result.astype(np.float32)
    return array_namespace(factor).asarray(result, device=target_device)
