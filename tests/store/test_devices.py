"""Choice of devices, and shards on devices."""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.sparse

import cec_mpi
from cec_mpi.errors import DamagedStoreError, InputError, ShortageError
from cec_mpi.store.devices import Device, check_device, choose_device, devices_of, find_devices
from cec_mpi.store.replicas.device_shard import SparseDeviceShard

RNG = np.random.default_rng(9)
STRICT = "array_api_strict:cpu"


@pytest.mark.parametrize(
    "text", ["gpu", "cuda:x", "torch", "torch:", "jax:tpu", "cuda:-1", ":cuda", "", 3, None]
)
def test_invalid_device_names_are_refused(text):
    with pytest.raises(InputError, match="expected cpu, auto, cuda"):
        check_device(text)


@pytest.mark.parametrize("text", ["cpu", "auto", "cuda:3", "mps", "xpu", "cupy:cuda:0"])
def test_names_of_absent_devices_are_valid(text):
    check_device(text)


@pytest.fixture
def gpus(monkeypatch):
    """Emulate three GPUs of torch; return their free memory."""
    free = {"cuda:0": 10, "cuda:1": 80, "cuda:2": 79}

    class Gpu(Device):
        def memory(self):
            return free[self.name.partition(":")[2]], 80

    devices = {"torch": [Gpu(f"torch:{name}", None, None) for name in ("cpu", *free)], "jax": []}
    monkeypatch.setattr("cec_mpi.store.devices.devices_of", lambda name: devices.get(name, ()))
    return free


@pytest.mark.parametrize("text", ["auto", "cuda", "torch:cuda"])
def test_machines_share_the_gpus_with_the_most_free_memory(gpus, text):
    assert [choose_device(text, n).name[-1] for n in (1, 2, 3)] == ["2", "1", "2"]
    gpus["cuda:1"] = 30
    assert choose_device(text, 2).name == "torch:cuda:2"


def test_a_device_can_be_chosen_by_its_index(gpus):
    assert choose_device("cuda:0", 2).name == "torch:cuda:0"
    with pytest.raises(InputError, match=r"no such device, only torch:cpu, torch:cuda:0"):
        find_devices("cuda:3")


def test_without_an_array_library_only_the_cpu_is_available(monkeypatch):
    monkeypatch.setattr("cec_mpi.store.devices.devices_of", lambda library: ())
    assert choose_device("cpu", 1) is choose_device("auto", 1) is None
    with pytest.raises(InputError, match="expected torch or cupy with array-api-compat, or jax,"):
        find_devices("cuda")


def test_a_damaged_block_does_not_reach_the_device(tmp_path):
    cec_mpi.encode(RNG.standard_normal((600, 50)), tmp_path / "store", 3, 2, block_bytes=1 << 12)
    shard = cec_mpi.open_store(tmp_path / "store").open_shard(1, device=choose_device(STRICT, 1))
    shard.load([(0, 100)])
    with shard.path.open("r+b") as stream:
        stream.seek(-8, os.SEEK_END)
        stream.write(b"\x01" * 8)
    assert not shard.has_changed()  # rows on the device stay valid
    with pytest.raises(DamagedStoreError, match="do not match their checksum"):
        shard.load([(0, 300)])


def test_a_device_without_memory_is_named(tmp_path, monkeypatch):
    cec_mpi.encode(RNG.standard_normal((600, 50)), tmp_path / "store", 3, 2)
    (device,) = (device for device in devices_of("array_api_strict") if device.name == STRICT)

    def raise_out_of_memory(*_):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(device, "empty", raise_out_of_memory)
    with pytest.raises(
        ShortageError, match=r"strict:cpu on .* is out of memory: the shard takes up 12"
    ):
        cec_mpi.open_store(tmp_path / "store").open_shard(1, device=device)


class ScipyDevice(Device):
    """A device that multiplies sparse matrices with SciPy."""

    def put_sparse(self, matrix):
        class Matrix:
            def __matmul__(_, vectors):
                return self.put(matrix @ self._fetch(vectors))

        return Matrix()


@pytest.mark.parametrize("k", [1, 3])
def test_sparse_rows_are_copied_after_another_assignment(tmp_path, k):
    X = scipy.sparse.random_array((300, 80), density=0.1, format="csr", rng=RNG)
    cec_mpi.encode(X, tmp_path / "store", 4, copies=2)
    store = cec_mpi.open_store(tmp_path / "store")
    import array_api_strict as xp

    device = ScipyDevice("scipy:cpu", xp, xp.Device("CPU_DEVICE"))
    shard, assigned = store.open_shard(1, device=device), store.manifest.rows_of_machine(1)
    assert isinstance(shard, SparseDeviceShard)
    shard.load(assigned)
    for intervals in (assigned, assigned[:1], assigned):
        rows = scipy.sparse.vstack([X[a:b] for a, b in intervals])
        W, U = RNG.standard_normal((k, 80)), RNG.standard_normal((rows.shape[0], k))
        forward, adjoint = np.empty((rows.shape[0], k)), np.empty((80, k))
        for _ in range(2):
            shard.multiply(W, intervals, forward)
            shard.multiply_transposed(U, intervals, adjoint)
        np.testing.assert_allclose(forward, rows @ W.T, atol=1e-12)
        np.testing.assert_allclose(adjoint, rows.T @ U, atol=1e-12)


def test_a_library_without_sparse_products_is_refused_at_the_start(tmp_path):
    cec_mpi.encode(scipy.sparse.eye_array(30, format="csr"), tmp_path / "store", 4, copies=2)
    with (
        pytest.raises(InputError, match="cannot multiply a sparse X: expected cpu, or a GPU with"),
        cec_mpi.open_operator(tmp_path / "store", device="jax:cpu"),
    ):
        pass
