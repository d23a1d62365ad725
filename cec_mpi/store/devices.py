"""Devices that multiply shards with an array library: torch, CuPy or JAX.

All of them follow the array API standard, most through ``array-api-compat``. A library is imported
when one of its devices is requested.
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

_LIBRARIES = "torch", "cupy", "jax"  # in order of preference
_TEST_LIBRARY = "array_api_strict"  # only if an option names it
_LIBRARIES_WITHOUT_COMPAT = "jax", _TEST_LIBRARY  # which need no array-api-compat
_DEVICE_TYPES = "cpu", "auto", "cuda", "mps", "xpu"
_EXPECTED_NAME = (
    "expected cpu, auto, cuda, cuda:0, mps or xpu, optionally after a library, such as "
    "torch:cuda or jax:cpu"
)
_SIMILAR_MEMORY = 0.9  # fraction of the largest free memory; see `choose_device`
_OUT_OF_MEMORY = re.compile("out of memory|RESOURCE_EXHAUSTED|ALLOC_FAILED", re.IGNORECASE)


class Tile(NamedTuple):
    """Rows of a shard that one product multiplies.

    Attributes
    ----------
    start, stop : int
    skip : int
        Number of leading rows that overlap the previous tile; their products are ignored.
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
        Device object of the library.
    model : str
        Name of the hardware.

    Attributes
    ----------
    has_float64 : bool
        Whether the device computes in float64.
    """

    has_float64 = True

    def __init__(self, name: str, xp: Any, handle: Any, model: str = "") -> None:
        self.name, self.model = name, model
        self.xp, self._handle = xp, handle
        self._scratch = Scratch(self.allocate_host)

    def __repr__(self) -> str:
        return self.name

    @property
    def is_accelerator(self) -> bool:
        """Whether the device is not the CPU."""
        return not self.name.endswith(":cpu")

    @classmethod
    def find(cls) -> list[Self]:
        """Return all devices of the library, which must be installed."""
        xp = import_module(_TEST_LIBRARY)
        devices = []
        for handle in xp.__array_namespace_info__().devices():
            name = str(handle).split("'")[1].replace("CPU_DEVICE", CPU)
            device = cls(f"{_TEST_LIBRARY}:{name}", xp, handle)
            device.has_float64 = "no_" not in name
            devices.append(device)
        return devices

    def memory(self) -> tuple[int, int]:
        """Return the free and the total memory in bytes."""
        return free_memory(), total_memory()

    def allocate_host(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array in main memory for fast copies to the device."""
        return np.empty(count, dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return an uninitialised array on the device."""
        return self.xp.empty(shape, dtype=self._dtype(dtype), device=self._handle)

    def write(self, array: Any, values: NDArray[Any], row: int, column: int) -> Any:
        """Return the array with values written at this row and column; invalidates `array`."""
        height, width = values.shape
        array[row : row + height, column : column + width] = self._copy(values)
        return array

    def put(self, values: NDArray[Any]) -> Any:
        """Return a copy on the device, valid until the next call."""
        buffer = self._scratch.array("put", values.shape, values.dtype)
        np.copyto(buffer, values)
        return self._copy(buffer)

    def put_tiles(self, U: NDArray[Any], tiles: Sequence[tuple[int, Tile]]) -> Iterator[Any]:
        """For each tile, copy its rows of U to the device, and yield the copy.

        A copy is valid until the next one.

        Parameters
        ----------
        U : (m, k) ndarray
        tiles : sequence of (int, Tile)
            Row of U for the first row of a tile that is not skipped, and the tile. Skipped rows are
            zeros in the copy.
        """
        device_U = self.put(U)
        for position, tile in tiles:
            yield device_U[position : position + tile.stop - tile.start, :]

    def get(self, array: Any, out: NDArray[Any], skip: int = 0) -> None:
        """Copy an array from the device to main memory, without its first `skip` rows."""
        np.copyto(out, self._fetch(array).reshape(-1, *out.shape[1:])[skip:])

    def tiles(self, start: int, stop: int, max_rows: int) -> Iterator[Tile]:
        """Yield tiles of these rows."""
        for first in range(start, stop, max_rows):
            yield Tile(first, min(first + max_rows, stop))

    def compiled_heights(self, tiles: Sequence[Tile]) -> set[int]:
        """Return the heights of tiles for which programs are compiled; empty if none are."""
        return set()

    def multiply(self, rows: Any, tile: Tile, W: Any, max_rows: int) -> Any:
        """Return products of a tile with vectors, (m, k) or (m,), in the dtype of the vectors.

        Parameters
        ----------
        rows : (R, r) array
        tile : Tile
        W : (k, r) array
        max_rows : int
            Maximum number of rows to convert at a time.
        """
        tile_rows = self._convert(rows, tile, W)
        return tile_rows @ W[0, :] if W.shape[0] == 1 else tile_rows @ W.T

    def multiply_transposed(self, rows: Any, tile: Tile, U: Any, max_rows: int) -> Any:
        """Return the transpose of ``tile_rows.T @ U``, (k, r) or (r,).

        Parameters
        ----------
        rows : (R, r) array
        tile : Tile
        U : (m, k) array
        max_rows : int
            Maximum number of rows to convert, or to sum in float32, at a time.
        """
        tile_rows = self._convert(rows, tile, U)
        return U[:, 0] @ tile_rows if U.shape[1] == 1 else U.T @ tile_rows

    def put_sparse(self, matrix: Any) -> Any:
        """Return a copy of a SciPy CSR matrix on the device, for products with ``@``.

        Raises
        ------
        InputError
            The library does not support products of sparse matrices on this device.
        """
        raise InputError(
            f"device {self.name} cannot multiply a sparse X: expected cpu, or a GPU with torch "
            "or CuPy"
        )

    def add(self, total: Any, term: Any) -> Any:
        """Return the sum of two arrays in float64; the total may be None."""
        term = self.xp.astype(term, self.xp.float64)
        return term if total is None else total + term

    @contextmanager
    def explain_shortage(self, demand: str) -> Iterator[None]:
        """Convert errors of a device that is out of memory to `ShortageError`.

        Raises
        ------
        ShortageError
            Names the device, the demand and the free memory.
        """
        try:
            yield
        except Exception as error:
            if not (isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error))):
                raise
            raise ShortageError(
                f"{self.name} on {socket.gethostname()} is out of memory: {demand}, and "
                f"{format_bytes(self.memory()[0])} are free"
            ) from None

    def _dtype(self, dtype: np.dtype[Any]) -> Any:
        return getattr(self.xp, dtype.name)

    def _copy(self, values: NDArray[Any]) -> Any:
        return self.xp.asarray(values, device=self._handle, copy=True)

    def _fetch(self, array: Any) -> NDArray[Any]:
        cpu, *_ = self.xp.__array_namespace_info__().devices()
        return np.asarray(array.to_device(cpu))

    def _convert(self, rows: Any, tile: Tile, vectors: Any) -> Any:
        """Return the rows of a tile in the dtype of the vectors."""
        return self.xp.astype(rows[tile.start : tile.stop, :], vectors.dtype, copy=False)


class TorchDevice(Device):
    """A device of torch."""

    @classmethod
    def find(cls) -> list[Self]:
        """See `Device.find`."""
        torch, xp = import_module("torch"), import_module("array_api_compat.torch")
        devices = [cls("torch:cpu", xp, torch.device("cpu"))]
        for device_type in ("cuda", "xpu"):
            backend: Any = getattr(torch, device_type, None)
            for index in range(backend.device_count() if backend and backend.is_available() else 0):
                name = f"{device_type}:{index}"
                model = backend.get_device_name(index)
                devices.append(cls(f"torch:{name}", xp, torch.device(name), model))
        if torch.backends.mps.is_available():
            devices.append(cls("torch:mps", xp, torch.device("mps"), "Apple GPU"))
            devices[-1].has_float64 = False
        return devices

    def memory(self) -> tuple[int, int]:
        """See `Device.memory`."""
        torch, device_type = self._torch, self._handle.type
        if device_type == CPU:
            return super().memory()
        if device_type == "mps":
            total = torch.mps.recommended_max_memory()
            return total - torch.mps.driver_allocated_memory(), total
        backend = getattr(torch, device_type)
        free, total = backend.mem_get_info(self._handle)
        cached = backend.memory_reserved(self._handle) - backend.memory_allocated(self._handle)
        return free + cached, total

    def allocate_host(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """See `Device.allocate_host`; for a CUDA device, the memory is pinned."""
        if self._handle.type != "cuda":
            return super().allocate_host(count, dtype)
        buffer = self._torch.empty(count * dtype.itemsize, dtype=self.xp.uint8, pin_memory=True)
        pinned: NDArray[Any] = buffer.numpy().view(dtype)
        return pinned

    def put_sparse(self, matrix: Any) -> Any:
        """See `Device.put_sparse`."""
        if self._handle.type == "mps":
            return super().put_sparse(matrix)
        arrays = (matrix.indptr, matrix.indices, matrix.data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sparse CSR tensors are in beta state
            pointers, indices, values = (
                self._torch.tensor(part, device=self._handle) for part in arrays
            )
            return self._torch.sparse_csr_tensor(pointers, indices, values, matrix.shape)

    @property
    def _torch(self) -> Any:
        return import_module("torch")

    def _copy(self, values: NDArray[Any]) -> Any:
        return self._torch.from_numpy(values).to(self._handle)

    def _fetch(self, array: Any) -> NDArray[Any]:
        if self._handle.type != "cuda":
            fetched: NDArray[Any] = array.cpu().numpy()
            return fetched
        dtype = np.dtype(str(array.dtype).removeprefix("torch."))
        buffer = self._scratch.array("get", tuple(array.shape), dtype)
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
        devices = []
        for index in range(count):
            model = cupy.cuda.runtime.getDeviceProperties(index)["name"].decode()
            devices.append(cls(f"cupy:cuda:{index}", xp, cupy.cuda.Device(index), model))
        return devices

    def memory(self) -> tuple[int, int]:
        """See `Device.memory`."""
        with self._handle:
            free, total = self._handle.mem_info
            return free + import_module("cupy").get_default_memory_pool().free_bytes(), total

    def allocate_host(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """See `Device.allocate_host`; the memory is pinned."""
        pinned: NDArray[Any] = import_module("cupyx").empty_pinned(count, dtype)
        return pinned

    def put_sparse(self, matrix: Any) -> Any:
        """See `Device.put_sparse`."""
        with self._handle:
            arrays = tuple(map(self.xp.asarray, (matrix.data, matrix.indices, matrix.indptr)))
            return import_module("cupyx.scipy.sparse").csr_matrix(arrays, shape=matrix.shape)

    @contextmanager
    def explain_shortage(self, demand: str) -> Iterator[None]:
        """See `Device.explain_shortage`; makes this the current device."""
        with super().explain_shortage(demand), self._handle:
            yield

    def _copy(self, values: NDArray[Any]) -> Any:
        array = self.xp.empty(values.shape, dtype=values.dtype)
        array.set(values)
        import_module("cupy").cuda.get_current_stream().synchronize()
        return array

    def _fetch(self, array: Any) -> NDArray[Any]:
        buffer = self._scratch.array("get", array.shape, array.dtype)
        self.xp.ascontiguousarray(array).get(out=buffer)
        return buffer


class JaxDevice(Device):
    """A device of JAX, which compiles a program per shape: heights of tiles are powers of two."""

    @classmethod
    def find(cls) -> list[Self]:
        """See `Device.find`."""
        # By default the first process would allocate three quarters of a GPU's memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")
        jax = import_module("jax")
        jax.config.update("jax_enable_x64", True)
        devices = []
        for platform in ("cpu", "gpu"):
            try:
                handles = jax.devices(platform)
            except RuntimeError:
                continue
            for handle in handles[: 1 if platform == CPU else None]:
                name = CPU if platform == CPU else f"cuda:{handle.id}"
                devices.append(cls(f"jax:{name}", jax.numpy, handle, handle.device_kind))
        return devices

    def memory(self) -> tuple[int, int]:
        """See `Device.memory`."""
        stats = self._handle.memory_stats()
        if not stats:
            return super().memory()
        return stats["bytes_limit"] - stats["bytes_in_use"], stats["bytes_limit"]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """See `Device.empty`."""
        return super().empty(shape, dtype).block_until_ready()

    def write(self, array: Any, values: NDArray[Any], row: int, column: int) -> Any:
        """See `Device.write`."""
        if not self.is_accelerator:
            values = values.copy()  # JAX does not copy arrays on a CPU
        copied = self._copy(values)
        written = _jax_functions()["write"](array, copied, row, column)
        copied.block_until_ready()  # the caller reuses `values`
        return written

    def tiles(self, start: int, stop: int, max_rows: int) -> Iterator[Tile]:
        """See `Device.tiles`; they may exceed `max_rows`, because products split them."""
        first, min_height = start, (stop - start) // 8
        while first < stop:
            remaining = stop - first
            height = _largest_power_of_two(remaining)
            if remaining < min_height and height < remaining:
                height *= 2  # the last tile, which overlaps the one before it
            end = min(first + height, stop)
            yield Tile(end - height, end, first - (end - height))
            first = end

    def put_tiles(self, U: NDArray[Any], tiles: Sequence[tuple[int, Tile]]) -> Iterator[Any]:
        """See `Device.put_tiles`."""
        for position, (start, stop, skip) in tiles:
            U_tile = np.zeros((stop - start, U.shape[1]), U.dtype)
            U_tile[skip:] = U[position : position + stop - start - skip]
            yield self._copy(U_tile)

    def compiled_heights(self, tiles: Sequence[Tile]) -> set[int]:
        """See `Device.compiled_heights`."""
        return {tile.stop - tile.start for tile in tiles}

    def multiply(self, rows: Any, tile: Tile, W: Any, max_rows: int) -> Any:
        """See `Device.multiply`."""
        height = tile.stop - tile.start
        multiply = _jax_functions()["multiply"]
        return multiply(rows, tile.start, W, height, min(height, _largest_power_of_two(max_rows)))

    def multiply_transposed(self, rows: Any, tile: Tile, U: Any, max_rows: int) -> Any:
        """See `Device.multiply_transposed`."""
        height = tile.stop - tile.start
        multiply = _jax_functions()["multiply_transposed"]
        return multiply(rows, tile.start, U, min(height, _largest_power_of_two(max_rows)))

    def _copy(self, values: NDArray[Any]) -> Any:
        return import_module("jax").device_put(values, self._handle)

    def _fetch(self, array: Any) -> NDArray[Any]:
        return np.asarray(array)


def _largest_power_of_two(count: int) -> int:
    """Return the largest power of two up to this number."""
    return 1 << (count.bit_length() - 1)


@cache
def _jax_functions() -> dict[str, Any]:
    """Return the compiled functions of JAX."""
    jax = import_module("jax")
    lax, xp, matmul = jax.lax, jax.numpy, jax.numpy.matmul

    def write(array: Any, values: Any, row: Any, column: Any) -> Any:
        return lax.dynamic_update_slice(array, values, (row, column))

    # By default GPUs would round float32 to fewer bits.
    def multiply(rows: Any, start: Any, W: Any, height: int, max_rows: int) -> Any:
        vectors = W[0] if W.shape[0] == 1 else W.T
        step = height if rows.dtype == W.dtype else max_rows

        def product(index: Any) -> Any:
            slab = lax.dynamic_slice_in_dim(rows, start + index * step, step)
            return matmul(slab.astype(W.dtype), vectors, precision="highest")

        if step == height:
            return product(0)
        products = lax.map(product, xp.arange(height // step))
        return products.reshape(height, *products.shape[2:])

    def multiply_transposed(rows: Any, start: Any, U: Any, step: int) -> Any:
        height, vector_count = U.shape

        def add(index: Any, total: Any) -> Any:
            slab = lax.dynamic_slice_in_dim(rows, start + index * step, step).astype(U.dtype)
            U_slab = lax.dynamic_slice_in_dim(U, index * step, step)
            U_slab = U_slab[:, 0] if vector_count == 1 else U_slab.T
            return total + matmul(U_slab, slab, precision="highest").astype("float64")

        shape = (rows.shape[1],) if vector_count == 1 else (vector_count, rows.shape[1])
        return lax.fori_loop(0, height // step, add, xp.zeros(shape, "float64"))

    return {
        "write": jax.jit(write, donate_argnums=0),
        "multiply": jax.jit(multiply, static_argnums=(3, 4)),
        "multiply_transposed": jax.jit(multiply_transposed, static_argnums=3),
    }


_CLASSES: dict[str, type[Device]] = {
    "torch": TorchDevice,
    "cupy": CupyDevice,
    "jax": JaxDevice,
    _TEST_LIBRARY: Device,
}


def check_device(text: Any) -> None:
    """Raise `InputError` if this is not the name of a device, available or not."""
    is_name = isinstance(text, str) and text and text.isprintable()
    _parse(text if is_name else shorten(text))


def _parse(text: str) -> tuple[str, str]:
    """Return the library, which may be empty, and the device of an option."""
    library, colon, device = text.partition(":")
    if library not in _CLASSES:
        library, device = "", text
    elif not colon:
        raise InputError(f"device {text}: {_EXPECTED_NAME}")
    device_type, colon, index = device.partition(":")
    is_valid_type = device_type in _DEVICE_TYPES or library == _TEST_LIBRARY
    if not is_valid_type or (colon and not (index.isdecimal() and index.isascii())):
        raise InputError(f"device {text}: {_EXPECTED_NAME}")
    return library, device


@cache
def devices_of(library: str) -> Sequence[Device]:
    """Return all devices of an array library; empty if it is not installed or cannot be used."""
    compat = [] if library in _LIBRARIES_WITHOUT_COMPAT else ["array_api_compat"]
    if any(find_spec(name) is None for name in (library, *compat)):
        return ()
    try:
        return tuple(_CLASSES[library].find())
    except (ImportError, OSError, RuntimeError) as error:  # for example a driver of another version
        log.warning("%s cannot be used: %s", library, error)
        return ()


def find_accelerators() -> list[Device]:
    """Return the accelerators of all installed libraries."""
    return [
        device for library in _LIBRARIES for device in devices_of(library) if device.is_accelerator
    ]


def find_devices(text: str) -> Sequence[Device]:
    """Return the devices that an option selects; empty for NumPy on the CPU.

    Parameters
    ----------
    text : str
        The option, such as ``auto`` or ``torch:cuda:0``.

    Raises
    ------
    InputError
        The device does not exist, or no library for it is installed.

    Examples
    --------
    >>> find_devices("cpu")
    ()
    """
    library, device_name = _parse(text)
    if not library and device_name == CPU:
        return ()
    available: list[str] = []
    for name in [library] if library else _LIBRARIES:
        devices = devices_of(name)
        if device_name == "auto":
            selected = [device for device in devices if device.is_accelerator]
        else:
            prefix = f"{name}:{device_name}:"
            selected = [device for device in devices if f"{device.name}:".startswith(prefix)]
        if selected:
            return selected
        available += [device.name for device in devices]
    if device_name == "auto":
        return ()
    problem = f"device {text}: {socket.gethostname()} has no such device"
    if available:
        raise InputError(f"{problem}, only {join_names(available)}")
    needed = f"{library} with array-api-compat"
    if not library:
        needed = "torch or cupy with array-api-compat, or jax,"
    elif library in _LIBRARIES_WITHOUT_COMPAT:
        needed = library
    raise InputError(
        f"{problem}, because no array library finds it: expected {needed} to be installed"
    )


def choose_device(text: str, machine: int) -> Device | None:
    """Return the device of a machine; None for NumPy on the CPU.

    If there are several devices, those whose free memory is at least 90% of the largest are
    assigned to the machines in turn.

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
    devices = find_devices(text)
    if not devices:
        return None
    free = [device.memory()[0] for device in devices]
    candidates = [
        device
        for device, free_bytes in zip(devices, free, strict=True)
        if free_bytes >= _SIMILAR_MEMORY * max(free)
    ]
    return candidates[machine % len(candidates)]
