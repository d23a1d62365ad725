"""A code that does not show wrong answers is refused, and the message says what would."""

import numpy as np
import pytest
from msgspec import structs

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.store.format.manifest import Rebuilt
from cec_mpi.store.manifest_files import read_manifest


def manifest_of(path, machines, recovery, dtype, columns=20, **code):
    X = np.random.default_rng(0).standard_normal((2 * recovery, columns))
    encode(X, path, machines, recovery, dtype=dtype, **code)
    return read_manifest(path)


def test_what_shows_errors_is_taken(tmp_path):
    for dtype in ("float32", "float64"):
        manifest = manifest_of(tmp_path / dtype, 4, 2, dtype)
        SessionOptions(check=True).validate(manifest)


def test_what_does_not_is_refused_with_what_helps(tmp_path):
    manifest = manifest_of(tmp_path / "store", 12, 9, "float32", columns=100, code="fourier")
    says = (
        r"check: with this code \(fourier, N = 12, L = 9\) in float32, "
        r"a check with 10 machines can miss errors of up to 0\.\d+ of X w, expected at "
        "most 0.001: encode with dtype float64, a smaller L, or another code$"
    )
    with pytest.raises(InputError, match=says):
        SessionOptions(check=True).validate(manifest)
    SessionOptions().validate(manifest)


@pytest.mark.parametrize(("bound", "says"), [(1e-3, "errors of up to 0.0"), (9, "as large as X")])
def test_a_store_with_repaired_shards_that_are_too_inexact_is_refused(bound, says, tmp_path):
    manifest = manifest_of(tmp_path / "store", 4, 2, "float64")
    first = structs.replace(manifest.shards[0], rebuilt=(Rebuilt(0, 2, bound),))
    repaired = structs.replace(manifest, shards=(first, *manifest.shards[1:]))
    with pytest.raises(InputError, match=f"{says}.*: encode X again, because repaired shards"):
        SessionOptions(check=True).validate(repaired)
    slightly = structs.replace(first, rebuilt=(Rebuilt(0, 2, 1e-12),))
    SessionOptions(check=True).validate(
        structs.replace(manifest, shards=(slightly, *manifest.shards[1:]))
    )


def test_where_all_machines_are_needed_there_is_nothing_to_compare(tmp_path):
    manifest = manifest_of(tmp_path / "store", 3, 3, "float64")
    says = "a row has only 3 answers: encode with more machines, or a smaller L$"
    with pytest.raises(InputError, match=says):
        SessionOptions(check=True).validate(manifest)
