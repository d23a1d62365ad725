"""Devices that multiply shards with an array library: torch, CuPy or JAX.

All of them follow the array API standard, mostly through ``array-api-compat``. A library is
imported when one of its devices is asked for.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError, ShortageError
from cec_mpi.store.limits import free_memory, total_memory
from cec_mpi.store.products.scratch import Scratch
from cec_mpi.store.shard import CPU
from cec_mpi.text import format_bytes, join_names, shorten

log = logging.getLogger(__name__)

_LIBRARIES = "torch", "cupy", "jax"  # in the order in which they are tried
_TESTED_LIBRARY = "array_api_strict"  # only if it is named
_KINDS = "cpu", "auto", "cuda", "mps", "xpu"
_EXPECTED = (
    "expected cpu, auto, cuda, cuda:0, mps or xpu, perhaps after a library and a colon, such as "
    "torch:cuda or jax:cpu"
)
_SIMILAR_MEMORY = 0.9  # of the most free memory of a device, from which machines take turns
_SHORTAGE = re.compile("out of memory|RESOURCE_EXHAUSTED|ALLOC_FAILED", re.IGNORECASE)


class Tile(NamedTuple):
    """Rows of a shard that are multiplied at once.

    Attributes
    ----------
    start, stop : int
    skip : int
        How many of the first of them belong to the tile before.
    """

    start: int
    stop: int
    skip: int = 0


class Device:
    """A device on which an array library computes, by the array API standard.

    Parameters
    ----------
    name : str
        Library and device, such as ``torch:cuda:0``.
    xp : module
        Namespace of the array API.
    handle : object
        The device as the library knows it.
    model : str
        Name of the hardware.

    Attributes
    ----------
    name, xp, model
        As given.
    has_float64 : bool
    """

    has_float64 = True

    def __init__(self, name: str, xp: Any, handle: Any, model: str = "") -> None:
        self.name, self.model = name, model
        self.xp, self._handle = xp, handle
        self._scratch = Scratch(self.allocate)

    def __repr__(self) -> str:
        return self.name

    @property
    def is_accelerator(self) -> bool:
        """Whether it is another device than the processor."""
        return not self.name.endswith(":cpu")

    @classmethod
    def find(cls) -> list[Self]:
        """Return the devices of the library, which is installed."""
        xp = import_module(_TESTED_LIBRARY)
        found = []
        for handle in xp.__array_namespace_info__().devices():
            name = str(handle).split("'")[1].replace("CPU_DEVICE", CPU)
            found.append(cls(f"{_TESTED_LIBRARY}:{name}", xp, handle))
            found[-1].has_float64 = "no_" not in name
        return found

    def memory(self) -> tuple[int, int]:
        """Return the bytes that are free, and all bytes."""
        return free_memory(), total_memory()

    def allocate(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a buffer in main memory, from which copies to the device are fast."""
        return np.empty(count, dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return an array on the device."""
        return self.xp.empty(shape, dtype=self._dtype(dtype), device=self._handle)

    def write(self, array: Any, numbers: NDArray[Any], start: int, left: int) -> Any:
        """Return the array with these numbers from a row and column on; `array` is lost."""
        height, width = numbers.shape
        array[start : start + height, left : left + width] = self._copy(numbers)
        return array

    def put(self, numbers: NDArray[Any]) -> Any:
        """Return a copy on the device, valid until the next call."""
        staged = self._scratch.of("put", numbers.shape, numbers.dtype)
        np.copyto(staged, numbers)
        return self._copy(staged)

    def put_parts(self, U: NDArray[Any], tiles: Sequence[tuple[int, Tile]]) -> Iterator[Any]:
        """Yield copies on the device of the rows of U for tiles, each valid until the next.

        Parameters
        ----------
        U : (m, k) ndarray
        tiles : sequence of (int, Tile)
            The row of U where each tile begins; rows that it skips are zeros.
        """
        whole = self.put(U)
        for position, tile in tiles:
            yield whole[position : position + tile.stop - tile.start, :]

    def get(self, array: Any, out: NDArray[Any], skip: int = 0) -> None:
        """Copy an array of the device, without its first rows, to main memory."""
        np.copyto(out, self._fetch(array).reshape(-1, *out.shape[1:])[skip:])

    def tiles(self, start: int, stop: int, most: int) -> Iterator[Tile]:
        """Yield these rows, at most so many at once."""
        for first in range(start, stop, most):
            yield Tile(first, min(first + most, stop))

    def program_heights(self, tiles: Sequence[Tile]) -> set[int]:
        """Return a number for each program that products of tiles need."""
        return {0}

    def multiply(self, rows: Any, tile: Tile, W: Any, most: int) -> Any:
        """Return products of rows with vectors, (m, k) or (m,), in the dtype of the vectors.

        Parameters
        ----------
        rows : (R, r) array
        tile : Tile
        W : (k, r) array
        most : int
            Rows that may be converted at once.
        """
        some = self._rows(rows, tile, W)
        return some @ W[0, :] if W.shape[0] == 1 else some @ W.T

    def multiply_transposed(self, rows: Any, tile: Tile, U: Any, most: int) -> Any:
        """Return products of transposed rows with vectors (m, k): the transpose, (k, r) or (r,).

        Parameters
        ----------
        rows : (R, r) array
        tile : Tile
        U : (m, k) array
        most : int
            Rows that may be converted, or added up in float32, at once.
        """
        some = self._rows(rows, tile, U)
        return U[:, 0] @ some if U.shape[1] == 1 else U.T @ some

    def sparse(self, matrix: Any) -> Any:
        """Return a copy of a SciPy CSR matrix on the device, for products with ``@``.

        Raises
        ------
        InputError
            The library has no such products.
        """
        raise InputError(
            f"device {self.name} cannot multiply a sparse X: expected cpu, or a GPU with torch "
            "or CuPy"
        )

    def add(self, total: Any, part: Any) -> Any:
        """Return a sum in float64."""
        part = self.xp.astype(part, self.xp.float64)
        return part if total is None else total + part

    @contextmanager
    def explain_shortage(self, purpose: str) -> Iterator[None]:
        """Raise `ShortageError` if the device lacks memory.

        Raises
        ------
        ShortageError
            States the device, the purpose and the free memory.
        """
        try:
            yield
        except Exception as error:
            if not (isinstance(error, MemoryError) or _SHORTAGE.search(str(error))):
                raise
            raise ShortageError(
                f"{self.name} on {socket.gethostname()} is out of memory: {purpose}, and "
                f"{format_bytes(self.memory()[0])} are free"
            ) from None

    def _dtype(self, dtype: np.dtype[Any]) -> Any:
        return getattr(self.xp, dtype.name)

    def _copy(self, numbers: NDArray[Any]) -> Any:
        return self.xp.asarray(numbers, device=self._handle, copy=True)

    def _fetch(self, array: Any) -> NDArray[Any]:
        cpu, *_ = self.xp.__array_namespace_info__().devices()
        return np.asarray(array.to_device(cpu))

    def _rows(self, rows: Any, tile: Tile, vectors: Any) -> Any:
        some = rows[tile.start : tile.stop, :]
        return some if some.dtype == vectors.dtype else self.xp.astype(some, vectors.dtype)


class TorchDevice(Device):
    """A device of torch."""

    @classmethod
    def find(cls) -> list[Self]:
        """See `Device.find`."""
        torch, xp = import_module("torch"), import_module("array_api_compat.torch")
        found = [cls("torch:cpu", xp, torch.device("cpu"))]
        for kind in ("cuda", "xpu"):
            backend: Any = getattr(torch, kind, None)
            for index in range(backend.device_count() if backend and backend.is_available() else 0):
                name = f"{kind}:{index}"
                model = backend.get_device_name(index)
                found.append(cls(f"torch:{name}", xp, torch.device(name), model))
        if torch.backends.mps.is_available():
            found.append(cls("torch:mps", xp, torch.device("mps"), "Apple GPU"))
            found[-1].has_float64 = False
        return found

    def memory(self) -> tuple[int, int]:
        """See `Device.memory`."""
        torch, kind = self._torch, self._handle.type
        if kind == CPU:
            return super().memory()
        if kind == "mps":
            most = torch.mps.recommended_max_memory()
            return most - torch.mps.driver_allocated_memory(), most
        backend = getattr(torch, kind)
        free, total = backend.mem_get_info(self._handle)
        held = backend.memory_reserved(self._handle) - backend.memory_allocated(self._handle)
        return free + held, total

    def allocate(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """See `Device.allocate`; pinned memory."""
        if self._handle.type != "cuda":
            return super().allocate(count, dtype)
        octets = self._torch.empty(count * dtype.itemsize, dtype=self.xp.uint8, pin_memory=True)
        pinned: NDArray[Any] = octets.numpy().view(dtype)
        return pinned

    def sparse(self, matrix: Any) -> Any:
        """See `Device.sparse`."""
        if self._handle.type == "mps":
            return super().sparse(matrix)
        arrays = (matrix.indptr, matrix.indices, matrix.data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are in beta state
            pointers, indices, values = (
                self._torch.tensor(part, device=self._handle) for part in arrays
            )
            return self._torch.sparse_csr_tensor(pointers, indices, values, matrix.shape)

    @property
    def _torch(self) -> Any:
        return import_module("torch")

    def _copy(self, numbers: NDArray[Any]) -> Any:
        return self._torch.from_numpy(numbers).to(self._handle)

    def _fetch(self, array: Any) -> NDArray[Any]:
        if self._handle.type != "cuda":
            fetched: NDArray[Any] = array.cpu().numpy()
            return fetched
        dtype = np.dtype(str(array.dtype).removeprefix("torch."))
        buffer = self._scratch.of("get", tuple(array.shape), dtype)
        self._torch.from_numpy(buffer).copy_(array)
        return buffer


class CupyDevice(Device):
    """A GPU of CuPy."""

    @classmethod
    def find(cls) -> list[Self]:
        """See `Device.find`."""
        cupy, xp = import_module("cupy"), import_module("array_api_compat.cupy")
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError:  # no driver
            return []
        found = []
        for index in range(count):
            model = cupy.cuda.runtime.getDeviceProperties(index)["name"].decode()
            found.append(cls(f"cupy:cuda:{index}", xp, cupy.cuda.Device(index), model))
        return found

    def memory(self) -> tuple[int, int]:
        """See `Device.memory`."""
        with self._handle:
            free, total = self._handle.mem_info
            return free + import_module("cupy").get_default_memory_pool().free_bytes(), total

    def allocate(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """See `Device.allocate`; pinned memory."""
        pinned: NDArray[Any] = import_module("cupyx").empty_pinned(count, dtype)
        return pinned

    def sparse(self, matrix: Any) -> Any:
        """See `Device.sparse`."""
        with self._handle:
            arrays = tuple(map(self.xp.asarray, (matrix.data, matrix.indices, matrix.indptr)))
            return import_module("cupyx.scipy.sparse").csr_matrix(arrays, shape=matrix.shape)

    @contextmanager
    def explain_shortage(self, purpose: str) -> Iterator[None]:
        """See `Device.explain_shortage`; makes this the current device."""
        with super().explain_shortage(purpose), self._handle:
            yield

    def _copy(self, numbers: NDArray[Any]) -> Any:
        array = self.xp.empty(numbers.shape, dtype=numbers.dtype)
        array.set(numbers)
        import_module("cupy").cuda.get_current_stream().synchronize()
        return array

    def _fetch(self, array: Any) -> NDArray[Any]:
        buffer = self._scratch.of("get", array.shape, array.dtype)
        self.xp.ascontiguousarray(array).get(out=buffer)
        return buffer


class JaxDevice(Device):
    """A device of JAX, which compiles a program for each shape: heights are powers of two."""

    @classmethod
    def find(cls) -> list[Self]:
        """See `Device.find`."""
        # Otherwise the first process would take three quarters of a card, and the next none.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")
        jax = import_module("jax")
        jax.config.update("jax_enable_x64", True)
        found = []
        for platform, kind in (("cpu", "cpu"), ("gpu", "cuda")):
            try:
                handles = jax.devices(platform)
            except RuntimeError:
                continue
            for handle in handles[: 1 if kind == CPU else None]:
                name = kind if kind == CPU else f"{kind}:{handle.id}"
                found.append(cls(f"jax:{name}", jax.numpy, handle, handle.device_kind))
        return found

    def memory(self) -> tuple[int, int]:
        """See `Device.memory`."""
        stats = self._handle.memory_stats()
        if not stats:
            return super().memory()
        return stats["bytes_limit"] - stats["bytes_in_use"], stats["bytes_limit"]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """See `Device.empty`."""
        return super().empty(shape, dtype).block_until_ready()

    def write(self, array: Any, numbers: NDArray[Any], start: int, left: int) -> Any:
        """See `Device.write`."""
        if not self.is_accelerator:
            numbers = numbers.copy()  # which would be used as it is
        copied = self._copy(numbers)
        written = _jax_functions()["write"](array, copied, start, left)
        copied.block_until_ready()  # the buffer is used again
        return written

    def tiles(self, start: int, stop: int, most: int) -> Iterator[Tile]:
        """See `Device.tiles`, but `most` is heeded inside of the products."""
        first, smallest = start, (stop - start) // 8
        while first < stop:
            left = stop - first
            height = _power_of_two(left)
            if left < smallest and height < left:
                height *= 2  # one tile that begins in the one before
            end = min(first + height, stop)
            yield Tile(end - height, end, first - (end - height))
            first = end

    def put_parts(self, U: NDArray[Any], tiles: Sequence[tuple[int, Tile]]) -> Iterator[Any]:
        """See `Device.put_parts`."""
        for position, (start, stop, skip) in tiles:
            part = np.zeros((stop - start, U.shape[1]), U.dtype)
            part[skip:] = U[position : position + stop - start - skip]
            yield self._copy(part)

    def program_heights(self, tiles: Sequence[Tile]) -> set[int]:
        """See `Device.program_heights`."""
        return {tile.stop - tile.start for tile in tiles}

    def multiply(self, rows: Any, tile: Tile, W: Any, most: int) -> Any:
        """See `Device.multiply`."""
        height = tile.stop - tile.start
        multiply = _jax_functions()["multiply"]
        return multiply(rows, tile.start, W, height, min(height, _power_of_two(most)))

    def multiply_transposed(self, rows: Any, tile: Tile, U: Any, most: int) -> Any:
        """See `Device.multiply_transposed`."""
        height = tile.stop - tile.start
        transposed = _jax_functions()["transposed"]
        return transposed(rows, tile.start, U, min(height, _power_of_two(most)))

    def _copy(self, numbers: NDArray[Any]) -> Any:
        return import_module("jax").device_put(numbers, self._handle)

    def _fetch(self, array: Any) -> NDArray[Any]:
        return np.asarray(array)


def _power_of_two(count: int) -> int:
    """Return the largest power of two up to this number."""
    return 1 << (count.bit_length() - 1)


@cache
def _jax_functions() -> dict[str, Any]:
    """Return the compiled functions of JAX."""
    jax = import_module("jax")
    lax, xp, matmul = jax.lax, jax.numpy, jax.numpy.matmul

    def write(array: Any, numbers: Any, start: Any, left: Any) -> Any:
        return lax.dynamic_update_slice(array, numbers, (start, left))

    # By default float32 would be rounded to fewer bits on GPUs.
    def multiply(rows: Any, start: Any, W: Any, height: int, most: int) -> Any:
        vectors = W[0] if W.shape[0] == 1 else W.T
        step = height if rows.dtype == W.dtype else most

        def product(index: Any) -> Any:
            some = lax.dynamic_slice_in_dim(rows, start + index * step, step)
            return matmul(some.astype(W.dtype), vectors, precision="highest")

        if step == height:
            return product(0)
        products = lax.map(product, xp.arange(height // step))
        return products.reshape(height, *products.shape[2:])

    def transposed(rows: Any, start: Any, U: Any, most: int) -> Any:
        height, vectors = U.shape

        def add(index: Any, total: Any) -> Any:
            some = lax.dynamic_slice_in_dim(rows, start + index * most, most).astype(U.dtype)
            given = lax.dynamic_slice_in_dim(U, index * most, most)
            given = given[:, 0] if vectors == 1 else given.T
            return total + matmul(given, some, precision="highest").astype("float64")

        shape = (rows.shape[1],) if vectors == 1 else (vectors, rows.shape[1])
        return lax.fori_loop(0, height // most, add, xp.zeros(shape, "float64"))

    return {
        "write": jax.jit(write, donate_argnums=0),
        "multiply": jax.jit(multiply, static_argnums=(3, 4)),
        "transposed": jax.jit(transposed, static_argnums=3),
    }


_CLASSES: dict[str, type[Device]] = {
    "torch": TorchDevice,
    "cupy": CupyDevice,
    "jax": JaxDevice,
    _TESTED_LIBRARY: Device,
}


def check_device(text: Any) -> None:
    """Raise `InputError` if this does not name a device, present or not."""
    is_name = isinstance(text, str) and text and text.isprintable()
    _parse(text if is_name else shorten(text))


def _parse(text: str) -> tuple[str, str]:
    """Return the library, which may be empty, and the device."""
    library, colon, device = text.partition(":")
    if library not in _CLASSES:
        library, device = "", text
    elif not colon:
        raise InputError(f"device {text}: {_EXPECTED}")
    kind, colon, index = device.partition(":")
    is_known = kind in _KINDS or library == _TESTED_LIBRARY
    if not is_known or (colon and not (index.isdecimal() and index.isascii())):
        raise InputError(f"device {text}: {_EXPECTED}")
    return library, device


@cache
def devices_of(library: str) -> Sequence[Device]:
    """Return all devices that an array library finds; empty if it is not installed."""
    compat = [] if library in ("jax", _TESTED_LIBRARY) else ["array_api_compat"]
    if any(find_spec(name) is None for name in (library, *compat)):
        return ()
    try:
        return tuple(_CLASSES[library].find())
    except (ImportError, OSError, RuntimeError) as error:  # such as one for another driver
        log.warning("%s cannot be used: %s", library, error)
        return ()


def find_accelerators() -> list[Device]:
    """Return the accelerators that any installed library finds."""
    return [
        device for library in _LIBRARIES for device in devices_of(library) if device.is_accelerator
    ]


def find_devices(text: str) -> Sequence[Device]:
    """Return the devices that an option allows; empty for the processor and NumPy.

    Parameters
    ----------
    text : str
        The option, such as ``auto`` or ``torch:cuda:0``.

    Raises
    ------
    InputError
        There is no such device, or no library for it is installed.

    Examples
    --------
    >>> find_devices("cpu")
    ()
    """
    library, device = _parse(text)
    if not library and device == CPU:
        return ()
    seen: list[str] = []
    for name in [library] if library else _LIBRARIES:
        all_found = devices_of(name)
        found = [
            each
            for each in all_found
            if (each.is_accelerator if device == "auto" else _matches(each.name, name, device))
        ]
        if found:
            return found
        seen += [each.name for each in all_found]
    if device == "auto":
        return ()
    what = f"device {text}: {socket.gethostname()} has no such device"
    if seen:
        raise InputError(f"{what}, only {join_names(seen)}")
    wanted = library or "torch, cupy or jax"
    raise InputError(
        f"{what}, because no array library finds it: expected {wanted} and array-api-compat to be "
        "installed"
    )


def _matches(name: str, library: str, device: str) -> bool:
    return f"{name}:".startswith(f"{library}:{device}:")


def choose_device(text: str, machine: int) -> Device | None:
    """Return the device of a machine; None for the processor and NumPy.

    Of several devices it has most free memory; machines take turns where this is similar.

    Parameters
    ----------
    text : str
        See `find_devices`.
    machine : int

    Raises
    ------
    InputError
        See `find_devices`.
    """
    found = find_devices(text)
    if not found:
        return None
    free = [device.memory()[0] for device in found]
    similar = [
        device
        for device, bytes_ in zip(found, free, strict=True)
        if bytes_ >= _SIMILAR_MEMORY * max(free)
    ]
    return similar[machine % len(similar)]
