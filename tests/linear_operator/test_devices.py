"""Operators with shards on devices, and factors that are arrays of other libraries."""

from __future__ import annotations

import array_api_strict
import jax.numpy
import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.store.devices import choose_device
from helpers.elastic import open_in_process
from helpers.products import check_products
from helpers.recording import MemoryRecorder

RNG = np.random.default_rng(6)
X = RNG.standard_normal((240, 40))
MIXED = ["cpu", "jax:cpu", "array_api_strict:device1"]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    path = tmp_path_factory.mktemp("devices")
    for dtype in ("float32", "float64"):
        cec_mpi.encode(X, path / dtype, 3, 2, dtype=dtype)
    return path


@pytest.mark.parametrize("xp", [array_api_strict, jax.numpy], ids=["strict", "jax"])
def test_products_are_arrays_of_the_library_of_their_factor(stores, xp):
    w, W, v = (xp.asarray(RNG.standard_normal(shape)) for shape in (40, (40, 3), 240))
    with cec_mpi.open_operator(stores / "float64") as A:
        for product, expected in (
            (A @ w, X @ np.asarray(w)),
            (A @ W, X @ np.asarray(W)),
            (A.matvec(w), X @ np.asarray(w)),
            (A.rmatvec(v), X.T @ np.asarray(v)),
            (A.matmat(W), X @ np.asarray(W)),
            (A.H @ v, X.T @ np.asarray(v)),
            ((2 * A) @ w, 2 * X @ np.asarray(w)),
        ):
            assert type(product) is type(w)
            np.testing.assert_allclose(np.asarray(product), expected, atol=1e-4)


@pytest.mark.parametrize("precision", ["double", "shard"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 3e-6)])
@pytest.mark.parametrize("device", ["array_api_strict:cpu", "jax:cpu", MIXED, ",".join(MIXED)])
def test_products_are_right_with_machines_on_devices(stores, device, dtype, tolerance, precision):
    recorder = MemoryRecorder()
    options = {"device": device, "precision": precision, "recorder": recorder}
    with cec_mpi.open_operator(stores / dtype, **options) as operator:
        for machines in (None, {1, 2}, {1, 3}):
            operator.available = machines
            check_products(operator, X, tolerance=tolerance)
    names = device if isinstance(device, list) else device.split(",")
    expected = [name if name != "cpu" else "" for name in names]
    assert recorder.header["devices"][1:] == expected * (3 // len(expected))


def test_vectors_are_rounded_on_a_device_only_with_precision_shard(stores):
    w = 1 + RNG.standard_normal(40) * 1e-9
    found = {}
    for precision in ("double", "shard"):
        for device in ("cpu", "jax:cpu"):
            options = {"device": device, "precision": precision, "speeds": (1, 1, 1)}
            with cec_mpi.open_operator(stores / "float32", **options) as operator:
                found[precision, device] = operator @ w
    np.testing.assert_allclose(found["double", "cpu"], found["double", "jax:cpu"], rtol=1e-10)
    assert abs(found["double", "cpu"] - found["shard", "jax:cpu"]).max() > 1e-8


NO_FLOAT64 = "array_api_strict:no_float64"
NEEDS_SHARD = "has no float64, expected precision='shard' with a"


@pytest.mark.parametrize(
    ("dtype", "options", "message"),
    [
        ("float64", {"device": NO_FLOAT64, "precision": "shard"}, NEEDS_SHARD),
        ("float32", {"device": NO_FLOAT64, "precision": "double"}, NEEDS_SHARD),
        ("float64", {"device": "cuda:99"}, "has no such device"),
        ("float64", {"device": ["cpu", "cpu"]}, "expected one device, or one for each of 3"),
    ],
)
def test_unknown_and_unsuitable_devices_are_refused(stores, dtype, options, message):
    with pytest.raises(InputError, match=message):
        cec_mpi.open_operator(stores / dtype, **options).start()


def test_a_device_without_float64_multiplies_float32(stores):
    options = {"device": NO_FLOAT64, "precision": "shard"}
    with cec_mpi.open_operator(stores / "float32", **options) as operator:
        check_products(operator, X, tolerance=3e-6)


def test_a_machine_whose_device_is_full_leaves(stores, monkeypatch, caplog):
    device, recorder = choose_device("array_api_strict:device1", 3), MemoryRecorder()

    def fail(*_):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(device, "multiply", fail)
    devices = ["cpu", "cpu", device.name]
    with open_in_process(stores / "float64", device=devices, recorder=recorder) as operator:
        for _ in range(3):
            np.testing.assert_allclose(operator @ np.ones(40), X.sum(axis=1), atol=1e-12)
    assert [event["lost"] for event in recorder.all_events] == [3]
    assert "is out of memory: the shard takes up 38.4 kB" in caplog.text
