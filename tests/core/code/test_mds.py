"""MDS codes: any L machines determine X, as accurately as their condition number allows."""

from itertools import combinations

import numpy as np
import pytest

from cec_mpi.core.code.conditioning import measure_conditioning
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import MDSCode, make_code
from cec_mpi.errors import InfeasibleError, InputError

EPS = np.finfo(np.float64).eps


def encode(code, parts):
    out = np.empty((code.machines, *parts.shape[1:]), dtype=parts.dtype)
    code.encode(parts, out)
    return out


def decode(code, shards, machines):
    values = shards[np.array(machines) - 1]
    out = np.empty_like(values)
    code.make_decoder(machines).decode(values, out)
    return out


def generator_rows(code, machines):
    return code.generator[np.array(machines) - 1]


# --- decoding -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*FAMILIES, None])
@pytest.mark.parametrize("systematic", [False, True])
def test_any_l_machines_determine_x(family, systematic):
    for machines, recovery in [(1, 1), (4, 1), (3, 2), (5, 5), (6, 3), (7, 4)]:
        code = make_code(machines, recovery, family, systematic=systematic)
        parts = np.random.default_rng(machines).standard_normal((recovery, 4))
        shards = encode(code, parts)
        for subset in combinations(range(machines, 0, -1), recovery):
            error = np.abs(decode(code, shards, subset) - parts).max()
            condition = np.linalg.cond(generator_rows(code, subset))
            assert error <= 20 * EPS * condition * np.abs(parts).max()
            norm1_condition = np.linalg.cond(generator_rows(code, subset), 1)
            estimate = code.make_decoder(subset).condition
            assert 0.3 * norm1_condition <= estimate <= 1.000001 * norm1_condition
        if systematic:
            assert np.array_equal(shards[:recovery], parts)


@pytest.mark.parametrize("machines", [(1, 2), (1, 2, 3, 4), (), (0, 1, 2), (1, 2, 7), (1, 1, 2)])
def test_a_decoder_needs_l_different_machines(machines):
    with pytest.raises(InputError, match="machines"):
        make_code(6, 3).make_decoder(machines)


# --- conditioning -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machines", "recovery", "median", "worst"),
    [(6, 3, 2.6, 5.8), (10, 5, 6, 42), (24, 20, 16, 900)],
)
def test_condition_numbers_of_the_fourier_code(machines, recovery, median, worst):
    conditioning = make_code(machines, recovery, "fourier").conditioning
    assert conditioning.complete
    assert conditioning.median == pytest.approx(median, rel=0.03)
    assert conditioning.worst == pytest.approx(worst, rel=0.03)


def test_few_subsets_are_all_measured_and_many_are_sampled():
    generator = np.random.default_rng(0).standard_normal((14, 7))
    generator[12] = generator[13] + 1e-6
    conditioning = measure_conditioning(generator)
    subsets = np.array(list(combinations(range(14), 7)))
    conditions = np.linalg.cond(generator[subsets])
    assert (conditioning.complete, conditioning.measured) == (True, len(subsets))
    assert conditioning.worst == pytest.approx(conditions.max(), rel=1e-4)
    assert conditioning.median == pytest.approx(np.median(conditions), rel=1e-6)
    assert conditioning.worst_machines == tuple((subsets[conditions.argmax()] + 1).tolist())
    sample = measure_conditioning(generator, max_exhaustive=100)
    assert not sample.complete
    assert sample.worst <= conditioning.worst
    assert sample == measure_conditioning(generator, max_exhaustive=100)


@pytest.mark.parametrize(
    ("subset", "include"),
    [(np.arange(25, 45) % 30, []), (np.arange(0, 60, 3), [(np.arange(0, 60, 3) + 1).tolist()])],
    ids=["run of machines", "requested subset"],
)
def test_a_sample_includes_runs_and_requested_subsets(subset, include):
    rng = np.random.default_rng(5)
    generator = rng.standard_normal((max(30, subset.max() + 1), 20))
    generator[subset[0]] = rng.standard_normal(19) @ generator[subset[1:]]
    generator[subset[0]] += 1e-10 * rng.standard_normal(20)
    conditioning = measure_conditioning(generator, include=include)
    assert not conditioning.complete
    assert conditioning.worst_machines == tuple(sorted((subset + 1).tolist()))


@pytest.mark.parametrize(
    ("machines", "recovery", "family"),
    [(6, 3, "fourier"), (24, 16, "fourier"), (25, 16, "orthonormal"), (60, 30, "orthonormal")],
)
def test_the_default_family_depends_on_the_number_of_machines(machines, recovery, family):
    code = make_code(machines, recovery)
    assert code.family == family
    assert code.conditioning.worst < 1e6


def test_float32_is_rejected_if_it_would_decode_to_noise():
    code = MDSCode(np.vander(np.arange(1.0, 11.0), 5), "vandermonde")
    with pytest.raises(InputError, match=r"float32 .* vandermonde .* 6, 7, 8, 9, 10 .* 2.0e\+07"):
        code.check_precision(np.float32)
    code.check_precision(np.float64)


# --- generators ---------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*FAMILIES, None])
def test_a_seed_determines_the_code(family):
    code, same_code, other_code = (make_code(8, 4, family, seed=seed) for seed in (3, 3, 1))
    assert code.generator.tobytes() == same_code.generator.tobytes()
    assert (code.family, code.conditioning) == (same_code.family, same_code.conditioning)
    is_random = code.family in ("orthonormal", "gaussian")
    assert is_random != np.array_equal(code.generator, other_code.generator)


def test_an_orthonormal_code_has_orthogonal_columns():
    generator = make_code(9, 4, "orthonormal").generator
    assert np.allclose(generator.T @ generator, np.eye(4) * 9 / 4)


@pytest.mark.parametrize(
    ("generator", "message"),
    [
        ([[1, 2], [0, 1], [1, 2]], "not MDS .* machines 1, 3"),
        ([[1, 0], [0, 0], [1, 1]], "not MDS .* condition number inf"),
        ([[1, np.nan], [0, 1]], "NaN or infinity"),
        (np.ones((2, 3)), r"shape \(2, 3\)"),
        (np.ones((3, 0)), r"shape \(3, 0\)"),
        (np.ones(3), r"shape \(3,\)"),
    ],
)
def test_a_matrix_that_is_not_mds_is_rejected(generator, message):
    with pytest.raises(InputError, match=message):
        MDSCode(generator)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((6, 0), {}, InputError, "recovery threshold 0"),
        ((2, 3), {}, InfeasibleError, "recovery threshold 3 for 2 machines"),
        ((100_001, 3), {}, InputError, "100001 machines: expected at most 100000"),
        ((6, 3, "reed"), {}, InputError, f"'reed'.*{', '.join(FAMILIES)}"),
        ((6, 3), {"seed": -1}, InputError, "seed -1: expected at least 0"),
        ((100, 50, "fourier"), {}, InputError, "fourier generator for 100 machines"),
        ((100, 50, "fourier"), {"systematic": True}, InputError, "first rows are singular|not MDS"),
    ],
)
def test_invalid_arguments_of_codes_are_rejected(arguments, options, error, message):
    with pytest.raises(error, match=message):
        make_code(*arguments, **options)
