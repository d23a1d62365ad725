"""Codes with which --check would miss wrong answers are rejected."""

import numpy as np
import pytest
from msgspec import structs

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.store.format.manifest import RebuiltRows


def manifest_of(path, machines, recovery, dtype="float64", columns=20, **code):
    X = np.random.default_rng(0).standard_normal((2 * recovery, columns))
    return encode(X, path, machines, recovery, dtype=dtype, **code)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_usual_codes_are_accepted(tmp_path, dtype):
    SessionOptions(check=True).validate(manifest_of(tmp_path / "store", 4, 2, dtype))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"machines": 12, "recovery": 9, "dtype": "float32", "columns": 100, "code": "fourier"},
            r"check: with this code \(fourier, N = 12, L = 9\) in float32, a check with 10 machines"
            r" can miss errors of up to 0\.\d+ of X w, expected at most 0.001: encode with dtype "
            "float64, a smaller L, or another code$",
        ),
        (
            {"machines": 3, "recovery": 3},
            "a row has only 3 answers: encode with more machines, or a smaller L$",
        ),
    ],
)
def test_a_code_that_hides_errors_is_rejected_with_a_remedy(tmp_path, arguments, message):
    manifest = manifest_of(tmp_path / "store", **arguments)
    SessionOptions().validate(manifest)
    with pytest.raises(InputError, match=message):
        SessionOptions(check=True).validate(manifest)


def test_shards_that_were_repaired_with_large_errors_are_rejected(tmp_path):
    manifest = manifest_of(tmp_path / "store", 4, 2)

    def validate(bound):
        repaired = structs.replace(manifest.shards[0], rebuilt=(RebuiltRows(0, 2, bound),))
        shards = repaired, *manifest.shards[1:]
        SessionOptions(check=True).validate(structs.replace(manifest, shards=shards))

    validate(1e-12)
    for bound, message in ((1e-3, "errors of up to 0.0"), (9, "as large as X")):
        with pytest.raises(InputError, match=f"{message}.*: encode X again, because repaired"):
            validate(bound)
