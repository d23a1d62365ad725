"""SciPy's tests that run on coded operators, that are skipped, and that must fail.

A test is named ``module.py::Class::function[parameters]``; a star stands for any text. Each pattern
must match a test.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import pytest
import scipy

MODULES = (  # of scipy.sparse.linalg
    "tests.test_interface",
    "tests.test_expm_multiply",
    "tests.test_funm_multiply_krylov",
    "tests.test_onenormest",
    "tests.test_propack",
    "_isolve.tests.test_iterative",
    "_isolve.tests.test_gcrotmk",
    "_isolve.tests.test_lgmres",
    "_isolve.tests.test_lsmr",
    "_isolve.tests.test_lsqr",
    "_isolve.tests.test_minres",
    "_eigen.tests.test_svds",
    "_eigen.arpack.tests.test_arpack",
    "_eigen.lobpcg.tests.test_lobpcg",
)

# Modules that compare with ==: in their stores, machines hold rows of X.
EXACT = ("test_interface.py",)

_MANY = "takes long, and other tests make the same products"
_SAME = "other tests make the same products"
_INNER = "its inner solver stops at 30 eps of float32, so the last digits decide"
SKIPPED = {
    "test_arpack.py::test_symmetric_modes[*-f-*-aslinearoperator-0.5-*": _INNER,
    "test_arpack.py::test_hermitian_modes[*-F-*-aslinearoperator-0.5*": _INNER,
    "test_arpack.py::test_real_nonsymmetric_modes[*-f-*-aslinearoperator-*0.1*": _INNER,
    "test_arpack.py::test_complex_nonsymmetric_modes[*-F-*-aslinearoperator-*0.1*": _INNER,
    "test_arpack.py::test_*_modes[*-asarray-*": _SAME,
    "test_arpack.py::test_*_modes[*-csr_array-*": _SAME,
    "test_svds.py::*::test_svd_simple[csc_array-*": _SAME,
    "test_iterative.py::test_maxiter[*": _SAME,
    "test_iterative.py::test_precond_dummy[rand*": _SAME,
    "test_iterative.py::test_x0_equals_Mb[rand*": _SAME,
    "test_onenormest.py::TestAlgorithm_2_2::test_randn_inv": _MANY,
    "test_iterative.py::*[poisson2d*": "each solver reads a dense matrix of 1,600 columns",
    "test_iterative.py::test_atol[bicg*": _MANY,
    "test_iterative.py::test_atol[*gmres*": _MANY,
    "test_iterative.py::test_atol[cgs*": _MANY,
    "test_iterative.py::test_atol[tfqmr*": _MANY,
    "test_iterative.py::test_atol[qmr*": _MANY,
    "test_iterative.py::test_atol[gcrotmk*": _MANY,
    "test_iterative.py::TestGMRES::test_atol_legacy": _MANY,
    "test_gcrotmk.py::TestGCROTMK::test_denormals": _MANY,
    "test_funm_multiply_krylov.py::*[cosm]": _MANY,
    "test_funm_multiply_krylov.py::*[sinm]": _MANY,
    "test_arpack.py::test_regression_arpackng_1315": _MANY,
    "test_arpack.py::test_reentering": _MANY,
    "test_propack.py::test_shifts_accuracy": _MANY,
    "test_svds.py::*::test_small_sigma_sparse[*": _MANY,
    "test_lobpcg.py::test_diagonal_data_types[?-15]": _MANY,
    "test_lobpcg.py::test_hermitian": _MANY,
    "test_lobpcg.py::test_b_orthonormalize[*": "1,296 tests that use no operator",
    "test_expm_multiply.py::*::test_expm_multiply_interval_vector": _MANY,
    "test_expm_multiply.py::*::test_expm_multiply_interval_matrix": _MANY,
    "test_expm_multiply.py::TestExpmActionSimple::test_expm_multiply": _MANY,
    "test_expm_multiply.py::TestExpmActionSimple::test_scaled_expm_multiply": _MANY,
    "test_expm_multiply.py::test_expm_multiply_dtype[*": _MANY,
}

_ZERO = "compares rounding errors of zeros with those of SciPy"
EXPECTED_FAILURES = {
    "test_onenormest.py::TestOnenormest::test_returns": _ZERO,
    "test_onenormest.py::TestOnenormest::test_onenormest_table_5_t_1": _ZERO,
    "test_lobpcg.py::test_inplace_warning": "only products with arrays cause this warning",
}

_SPARSE = "multiplies by a sparse matrix, which operators refuse"
_DTYPE = "compares dtypes: operators and their products have float64 or complex128"
if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 18):
    EXPECTED_FAILURES |= {
        "test_iterative.py::test_convergence[*-F-*": _DTYPE,
        "test_iterative.py::test_precond_dummy[*-F-*": _DTYPE,
        "test_iterative.py::test_x0_equals_Mb[*-F-*": _DTYPE,
        "test_interface.py::TestLinearOperator::test_matvec[numpy]": _DTYPE,
        "test_interface.py::TestAsLinearOperator::test_basic[numpy]": _DTYPE,
        "test_interface.py::TestAsLinearOperator::test_xp[numpy-int64]": _DTYPE,
        "test_interface.py::TestAsLinearOperator::test_xp[numpy-complex128]": _DTYPE,
        "test_interface.py::test_sparse_matmat_exception": _SPARSE,
    }


def short_name(nodeid: str) -> str:
    """Return the name of a test as this module writes it."""
    path, separator, test = nodeid.partition("::")
    return path.rpartition("/")[2] + separator + test


def first_match(patterns: Iterable[str], name: str) -> str | None:
    """Return the first pattern that matches a name, or None."""
    return next((p for p in patterns if fnmatchcase(name, p.replace("[", "[[]"))), None)


def mark_tests(items: list[pytest.Item]) -> None:
    """Skip tests, and mark those that must fail."""
    for item in items:
        name = short_name(item.nodeid)
        if pattern := first_match(SKIPPED, name):
            item.add_marker(pytest.mark.skip(reason=SKIPPED[pattern]))
        if pattern := first_match(EXPECTED_FAILURES, name):
            item.add_marker(pytest.mark.xfail(reason=EXPECTED_FAILURES[pattern], strict=True))


def find_unmatched_patterns(names: Iterable[str]) -> list[str]:
    """Return the patterns that match none of these names."""
    names = [*names]
    patterns = {*SKIPPED, *EXPECTED_FAILURES}
    return sorted(p for p in patterns if not any(first_match([p], name) for name in names))
