"""Real-valued MDS codes: any L machines give X back, and how accurately."""

from itertools import combinations

import numpy as np
import pytest

from cec_mpi.core.code.conditioning import measure_conditioning
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import MDSCode, make_code
from cec_mpi.errors import InfeasibleError, InputError

EPS = np.finfo(np.float64).eps
SMALL = [(machines, recovery) for machines in range(1, 8) for recovery in range(1, machines + 1)]


def encoded(code, parts):
    """What each machine stores."""
    out = np.empty((code.machines, *parts.shape[1:]), dtype=parts.dtype)
    code.encode(parts, out)
    return out


def decoded(code, shards, machines):
    decoder = code.make_decoder(machines)
    values = shards[[n - 1 for n in machines]]
    out = np.empty_like(values)
    decoder.decode(values, out)
    return out


def with_condition(number, size, seed):
    """A random square matrix with this condition number."""
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.standard_normal((size, size)))
    right, _ = np.linalg.qr(rng.standard_normal((size, size)))
    return left * np.geomspace(1, 1 / number, size) @ right


# --- decoding -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("systematic", [False, True])
def test_any_l_machines_give_x_back(family, systematic):
    for machines, recovery in SMALL:
        code = make_code(machines, recovery, family, systematic=systematic)
        parts = np.random.default_rng(machines).standard_normal((recovery, 4))
        shards = encoded(code, parts)
        for chosen in combinations(range(machines, 0, -1), recovery):
            condition = np.linalg.cond(code.generator[[n - 1 for n in chosen]])
            error = np.abs(decoded(code, shards, chosen) - parts).max()
            assert error <= 20 * EPS * condition * np.abs(parts).max()


@pytest.mark.parametrize("family", [*FAMILIES, None])
@pytest.mark.parametrize(("machines", "recovery"), [(1, 1), (4, 1), (5, 5), (6, 3), (7, 4)])
def test_first_machines_of_a_systematic_code_store_x_unchanged(family, machines, recovery):
    code = make_code(machines, recovery, family, systematic=True)
    parts = np.random.default_rng(0).standard_normal((recovery, 5))
    assert code.systematic
    assert np.array_equal(code.generator[:recovery], np.eye(recovery))
    assert np.array_equal(encoded(code, parts)[:recovery], parts)


@pytest.mark.parametrize("condition", [1e3, 1e4, 1e5, 1e8])
def test_decoding_is_as_accurate_as_numpys_solve(condition):
    ours, numpys = [], []
    for seed in range(30):
        code = MDSCode(with_condition(condition, 8, seed))
        parts = np.random.default_rng(seed).standard_normal((8, 20))
        shards = code.generator @ parts
        ours.append(np.abs(decoded(code, shards, range(1, 9)) - parts).max())
        numpys.append(np.abs(np.linalg.solve(code.generator, shards) - parts).max())
    assert np.median(ours) <= 2 * np.median(numpys)
    assert np.median(ours) <= condition * 20 * EPS


@pytest.mark.parametrize("condition", [10, 1e6])
def test_decoded_rows_may_lie_apart(condition):
    code = MDSCode(with_condition(condition, 3, 0))
    decoder = code.make_decoder((1, 2, 3))
    parts = np.arange(12.0).reshape(3, 4)
    whole = np.full((3, 9), 7.0)
    values = encoded(code, parts)
    decoder.decode(values, whole[:, 2:6])
    assert np.allclose(whole[:, 2:6], parts)
    assert (np.delete(whole, range(2, 6), axis=1) == 7.0).all()


@pytest.mark.parametrize("machines", [(1, 2), (1, 2, 3, 4), (), (0, 1, 2), (1, 2, 7), (1, 1, 2)])
def test_a_decoder_needs_l_different_machines_of_the_code(machines):
    with pytest.raises(InputError, match="machines"):
        make_code(6, 3).make_decoder(machines)


@pytest.mark.parametrize("family", FAMILIES)
def test_condition_of_a_decoder_is_close_to_the_1_norm_condition_number(family):
    code = make_code(7, 4, family)
    for chosen in combinations(range(1, 8), 4):
        true = np.linalg.cond(code.generator[[n - 1 for n in chosen]], 1)
        assert 0.3 * true <= code.make_decoder(chosen).condition <= 1.000001 * true


# --- conditioning -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machines", "recovery", "median", "worst"),
    [(6, 3, 2.6, 5.8), (10, 5, 6, 42), (24, 20, 16, 900)],
)
def test_condition_numbers_of_the_fourier_code(machines, recovery, median, worst):
    found = make_code(machines, recovery, "fourier").conditioning
    assert found.complete
    assert found.median == pytest.approx(median, rel=0.03)
    assert found.worst == pytest.approx(worst, rel=0.03)


def test_where_subsets_are_many_a_repeatable_sample_is_measured():
    generator = make_code(12, 6, "gaussian").generator
    sample, every = (
        measure_conditioning(generator, max_exhaustive=100),
        measure_conditioning(generator),
    )
    assert every.complete
    assert not sample.complete
    assert sample.worst <= every.worst
    assert sample == measure_conditioning(generator, max_exhaustive=100)


@pytest.mark.parametrize("first", [0, 25])
def test_a_sample_holds_every_run_of_consecutive_machines(first):
    rng = np.random.default_rng(0)
    generator = rng.standard_normal((30, 15))
    run = np.arange(first, first + 15) % 30
    generator[run[0]] = rng.standard_normal(14) @ generator[run[1:]]
    generator[run[0]] += 1e-10 * rng.standard_normal(15)
    found = measure_conditioning(generator)
    assert not found.complete
    assert found.worst_machines == tuple(sorted((run + 1).tolist()))


def test_the_worst_of_very_many_subsets_is_found():
    generator = np.random.default_rng(0).standard_normal((18, 9))
    generator[16] = generator[17] + 1e-6
    found = measure_conditioning(generator)
    subsets = np.array(list(combinations(range(18), 9)))
    numbers = np.linalg.cond(generator[subsets])
    assert found.measured == len(subsets) == 48_620
    assert found.worst == pytest.approx(numbers.max(), rel=1e-4)
    assert found.median == pytest.approx(np.median(numbers), rel=1e-6)
    assert found.worst_machines == tuple((subsets[numbers.argmax()] + 1).tolist())


@pytest.mark.parametrize(
    ("machines", "recovery", "family"),
    [(6, 3, "fourier"), (24, 16, "fourier"), (25, 16, "orthonormal"), (60, 30, "orthonormal")],
)
def test_the_default_family_depends_on_the_number_of_machines(machines, recovery, family):
    code = make_code(machines, recovery)
    assert code.family == family
    assert code.conditioning.worst < 1e6


def test_known_sets_belong_to_a_sample():
    generator = np.random.default_rng(5).standard_normal((120, 20))
    known = np.arange(0, 120, 6)
    generator[0] = np.ones(19) @ generator[known[1:]] + 1e-12
    found = measure_conditioning(generator, include=[(known + 1).tolist()])
    assert not found.complete
    assert found.worst_machines == tuple((known + 1).tolist())
    assert measure_conditioning(generator).worst < found.worst


def test_float32_is_refused_where_it_would_decode_to_noise():
    code = MDSCode(np.vander(np.arange(1.0, 11.0), 5), "vandermonde")
    with pytest.raises(InputError, match=r"float32 .* vandermonde .* 6, 7, 8, 9, 10 .* 2.0e\+07"):
        code.check_precision(np.float32)
    code.check_precision(np.float64)


def test_a_code_accepted_for_float32_decodes_to_1_percent_from_any_machines():
    code = make_code(7, 4, systematic=True)
    code.check_precision(np.float32)
    parts = np.random.default_rng(0).standard_normal((4, 100)).astype(np.float32)
    shards = encoded(code, parts).astype(np.float64)
    for chosen in combinations(range(1, 8), 4):
        error = np.linalg.norm(decoded(code, shards, chosen) - parts)
        assert error <= 0.01 * np.linalg.norm(parts)


# --- generators ---------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*FAMILIES, None])
def test_a_seed_gives_one_code_bit_for_bit(family):
    first, again, other = (make_code(8, 4, family, seed=seed) for seed in (3, 3, 1))
    assert first.generator.tobytes() == again.generator.tobytes()
    assert first.family == again.family
    assert first.conditioning == again.conditioning
    is_random = first.family in ("orthonormal", "gaussian")
    assert is_random != np.array_equal(first.generator, other.generator)


def test_an_orthonormal_code_has_orthogonal_columns():
    generator = make_code(9, 4, "orthonormal").generator
    assert np.allclose(generator.T @ generator, np.eye(4) * 9 / 4)


def test_a_generator_cannot_be_changed_and_is_a_copy():
    matrix = np.eye(3)[:, :2] + 1
    code = MDSCode(matrix)
    matrix[:] = 0
    assert (code.generator >= 1).all()
    with pytest.raises(ValueError, match="read-only"):
        code.generator[0, 0] = 5


@pytest.mark.parametrize(
    ("generator", "message"),
    [
        pytest.param([[1, 2], [0, 1], [1, 2]], "not MDS .* machines 1, 3", id="repeated row"),
        pytest.param([[1, 0], [0, 1], [2, 2], [3, 3]], "machines 3, 4", id="proportional rows"),
        pytest.param([[1, 0], [0, 0], [1, 1]], "not MDS .* condition number inf", id="zero row"),
        pytest.param([[1, np.nan], [0, 1]], "NaN or infinity", id="NaN"),
        pytest.param([[1, np.inf], [0, 1]], "NaN or infinity", id="infinity"),
        pytest.param(np.ones((2, 3)), r"shape \(2, 3\)", id="more parts than machines"),
        pytest.param(np.ones((3, 0)), r"shape \(3, 0\)", id="no parts"),
        pytest.param(np.ones(3), r"shape \(3,\)", id="one dimension"),
        pytest.param(1.0, r"shape \(\)", id="a number"),
    ],
)
def test_a_matrix_that_is_not_mds_is_refused(generator, message):
    with pytest.raises(InputError, match=message):
        MDSCode(generator)


@pytest.mark.parametrize("systematic", [False, True])
def test_a_family_that_is_hopeless_for_these_sizes_is_refused(systematic):
    message = "the fourier generator for 100 machines and recovery threshold 50"
    with pytest.raises(InputError, match=message):
        make_code(100, 50, "fourier", systematic=systematic)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ((6, 0), InputError, "recovery threshold 0"),
        ((2, 3), InfeasibleError, "recovery threshold 3 for 2 machines"),
        ((6, 3, "reed"), InputError, f"'reed'.*{', '.join(FAMILIES)}"),
    ],
)
def test_a_code_that_cannot_be_made_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        make_code(*options)
