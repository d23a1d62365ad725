"""How close the error figures of steps are to the true errors.

    python scripts/campaigns/error_figures.py [--seed I] [--decodes 1000000] [--seconds S]

Each case is a code of some family, systematic or not, a set of L machines that is random or the
worst that a search finds, X of some kind, and some vectors, each of which is multiplied, decoded
and compared with a product in long doubles, or as an adjoint. Prints how often each figure was
below the error, its quotient to the error, and that of the bound to the textbook's: gamma_r and
the rounding of X times sum_j c_j |w_j| times the largest row sum of |inv(G_P)| |G_P|. A step
without any error counts among the decodes, and in no quotient. Fails when a bound is too small.

``before`` is what was recorded in earlier versions: a bound by condition numbers and the scale that
the result suggests.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cec_mpi.core.accuracy.equilibration import equilibrate
from cec_mpi.core.accuracy.rounding import answer_error, gamma, unit_roundoff
from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import MDSCode, make_code
from cec_mpi.core.deviation.amplification import Amplifier, answer_errors, transposed_errors
from cec_mpi.core.deviation.figures import of_product, of_transposed_product
from cec_mpi.core.deviation.lengths import TermSizes, largest_of
from cec_mpi.errors import CecError

SIZES = [(3, 1), (4, 2), (6, 3), (8, 5), (12, 8), (20, 10), (30, 15), (40, 20), (60, 10)]
TYPES = [("float32", "float64"), ("float32", "float32"), ("float64", "float64")]
PER_CASE = 16  # vectors
WIDE = np.longdouble


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decodes", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    share = -(-arguments.decodes // arguments.workers)
    jobs = [
        ((arguments.seed, worker), share, time.monotonic() + arguments.seconds)
        for worker in range(arguments.workers)
    ]
    with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
        found = [seen for some in pool.starmap(campaign, jobs) for seen in some]
    print(f"{len(found)} decodes, seed {arguments.seed}")
    report(found)
    return int(any(seen.bound < seen.error for seen in found))


class Seen(NamedTuple):
    """One step."""

    product: str
    kind: str
    vector: str
    dtype: str
    arithmetic: str
    terms: int
    error: float
    before: float
    bound: float
    estimate: float
    textbook: float


def campaign(seed: tuple[int, int], decodes: int, until: float) -> list[Seen]:
    """Cases until there are so many decodes, or it is late."""
    rng, found = np.random.default_rng(seed), []
    codes = Codes()
    while len(found) < decodes and time.monotonic() < until:
        with np.errstate(all="ignore"):
            found += case(rng, codes)
    return found


# --- what is multiplied -------------------------------------------------------------------


def normal(rng, rows, columns):
    return rng.standard_normal((rows, columns))


MATRICES = {
    "normal": normal,
    "uniform": lambda rng, q, r: rng.random((q, r)),
    "signs": lambda rng, q, r: rng.choice([-1.0, 1.0], (q, r)),
    "binary": lambda rng, q, r: (rng.random((q, r)) < 0.3) * 1.0,
    "counts": lambda rng, q, r: rng.poisson(3, (q, r)) * 1.0,
    "cauchy": lambda rng, q, r: rng.standard_cauchy((q, r)),
    "t2": lambda rng, q, r: rng.standard_t(2, (q, r)),
    "lognormal": lambda rng, q, r: np.exp(3 * rng.standard_normal((q, r))),
    "sparse 10 %": lambda rng, q, r: normal(rng, q, r) * (rng.random((q, r)) < 0.1),
    "sparse 1 %": lambda rng, q, r: normal(rng, q, r) * (rng.random((q, r)) < 0.01),
    "rows": lambda rng, q, r: normal(rng, q, r) * 10.0 ** rng.uniform(-6, 0, (q, 1)),
    "columns": lambda rng, q, r: normal(rng, q, r) * 10.0 ** rng.uniform(-8, 8, (1, r)),
    "both": lambda rng, q, r: (
        rng.random((q, r)) * 10.0 ** rng.uniform(-6, 0, (q, 1)) * 10.0 ** rng.uniform(-8, 8, (1, r))
    ),
    "one row": lambda rng, q, r: (
        normal(rng, q, r) * np.where(np.arange(q) == q // 2, 1, 1e-6)[:, None]
    ),
    "constant rows": lambda rng, q, r: np.full((q, r), 0.1) * rng.random((q, 1)),
    "low rank": lambda rng, q, r: normal(rng, q, 2) @ normal(rng, 2, r),
    "rows of one sign": lambda rng, q, r: rng.choice([-1.0, 1.0], (q, 1)) * rng.random((q, r)),
    "hilbert": lambda rng, q, r: 1.0 / (np.arange(q)[:, None] + np.arange(r) + 1),
}


def vector(kind, X, rng):
    """A vector to multiply with; null: X w is far smaller than its terms, as far as it can be."""
    r = X.shape[1]
    if kind == "normal":
        return rng.standard_normal(r)
    if kind == "ones":
        return np.ones(r)
    if kind == "uniform":
        return rng.random(r)
    if kind == "unit":
        return np.where(np.arange(r) == rng.integers(r), rng.uniform(0.5, 1), 0.0)
    if kind == "alternating":
        return np.resize([1.0, -1.0], r)
    if kind == "halves":
        return np.where(np.arange(r) < r // 2, 1.0, -1.0) * rng.uniform(0.5, 1)
    if kind == "wide":
        return rng.standard_normal(r) * 10.0 ** rng.uniform(-10, 10, r)
    rows = X[: min(len(X), r - 1, 40)]
    sizes = np.abs(rows).max(axis=0, initial=0.0)
    sizes[sizes == 0] = 1.0
    scaled = rng.random(r)
    scaled -= np.linalg.lstsq(rows / sizes, rows @ (scaled / sizes), rcond=1e-12)[0]
    return scaled / sizes


VECTORS = ["normal", "ones", "uniform", "unit", "alternating", "halves", "null", "wide"]


class Codes:
    """Codes that are made once, and their worst sets of machines."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[MDSCode, list[int]] | None] = {}

    def one(self, rng, dtype) -> tuple[MDSCode, list[int]]:
        """Any of those that can be had with this dtype, and a set of L machines."""
        while True:
            machines, recovery = SIZES[rng.integers(len(SIZES))]
            family, systematic = sorted(FAMILIES)[rng.integers(len(FAMILIES))], rng.random() < 0.3
            key = machines, recovery, family, systematic, dtype
            if key not in self._made:
                self._made[key] = self._make(*key)
            found = self._made[key]
            if found is not None:
                code, worst = found
                some = np.sort(rng.choice(code.machines, code.recovery, replace=False)) + 1
                return code, worst if rng.random() < 0.5 else some.tolist()

    def _make(self, machines, recovery, family, systematic, dtype):
        try:
            code = make_code(machines, recovery, family, systematic=systematic, dtype=dtype)
            code.check_precision(dtype)
        except CecError:
            return None
        return code, worst_set(code)


def worst_set(code: MDSCode) -> list[int]:
    """The worst set that was measured, with single machines exchanged while that makes it worse."""
    chosen = [n - 1 for n in code.conditioning.worst_machines]
    best = np.linalg.cond(code.generator[chosen])
    for place in range(len(chosen)):
        others = [n for n in range(code.machines) if n not in chosen][:64]
        if not others:
            break
        sets = np.array([[*chosen[:place], n, *chosen[place + 1 :]] for n in others])
        conditions = np.linalg.cond(code.generator[sets])
        if best < conditions.max() < 1e15:
            best, chosen = conditions.max(), sets[conditions.argmax()].tolist()
    return sorted(n + 1 for n in chosen)


# --- steps --------------------------------------------------------------------------------


def likely_scale(parts):
    """What S was estimated as before: the largest of the numbers, and of few of them more."""
    sizes = np.abs(parts)
    samples = int(np.count_nonzero(sizes))
    return float(sizes.max()) * 10.0 ** (6.0 / samples) if samples else 0.0


def case(rng: np.random.Generator, codes: Codes) -> Iterator[Seen]:
    """Some steps with one X on one set of machines."""
    dtype, arithmetic = TYPES[rng.integers(len(TYPES))]
    code, machines = codes.one(rng, dtype)
    transposed, most = rng.random() < 0.3, round(10 ** rng.uniform(1, 4))
    rows, columns = int(rng.integers(2, 12)), most
    if transposed:
        rows, columns = max(2, most // code.recovery), int(rng.integers(2, 40))
    kind = list(MATRICES)[rng.integers(len(MATRICES))]
    X = MATRICES[kind](rng, code.recovery * rows, columns)
    store = Store(X, code, dtype, arithmetic, scaled=rng.random() < 0.5)
    for _ in range(PER_CASE):
        which = VECTORS[rng.integers(len(VECTORS))]
        given = vector(which, X.T if transposed else X, rng)
        if not (np.isfinite(given).all() and given.any()):
            continue
        given = given / np.abs(given).max()
        step = store.transposed_product if transposed else store.product
        error, before, figures, textbook = step(machines, given)
        if np.isfinite(error):
            name = "X' v" if transposed else "X w"
            yield Seen(
                name, kind, which, dtype, arithmetic, most, error, before, *figures, textbook
            )


class Store:
    """A code, X as it is given, and its shards."""

    def __init__(self, X, code, dtype, arithmetic, scaled):
        self.X, self.code, self.dtype, self.arithmetic = X.astype(WIDE), code, dtype, arithmetic
        kept = X.astype(dtype)
        exponents = np.zeros(len(X), np.int64)
        if scaled:
            out = np.empty_like(kept)
            exponents = equilibrate(kept, out, np.empty_like(kept)).astype(np.int64)
            kept = out
        self.scales = np.ldexp(1.0, exponents)[:, None]
        self.relative = np.ldexp(1.0, exponents - exponents.max())[:, None]
        parts = kept.reshape(code.recovery, -1, X.shape[1])
        self.shards = np.empty((code.machines, *parts.shape[1:]), dtype)
        code.encode(parts, self.shards)
        plain = kept.astype(np.float64)
        largest, typical = np.abs(plain).max(axis=0), np.sqrt((plain**2).mean(axis=0))
        self.largest, self.sizes = largest, TermSizes(largest, typical)

    def product(self, machines, w):
        """X w: the error, the figures before and now, and the textbook's bound."""
        decoder = Decoder(self.code.generator, machines)
        sent = w.astype(self.arithmetic)
        if self.arithmetic == "float32":
            w = sent.astype(np.float64)
        answers = [self.shards[n - 1].astype(self.arithmetic) @ sent for n in machines]
        values = np.array([answers[k] for k in decoder.order], dtype=np.float64)
        decoded = np.empty_like(values)
        decoder.decode(values, decoded)
        coded = decoded.reshape(-1, 1)
        y = coded * self.scales
        error = relative_error(y[:, 0], self.X @ w.astype(WIDE))
        amplifier, errors = self.amplifier(len(w))
        found = amplifier.of(decoder, tuple(machines))
        result = largest_of(coded * self.relative)
        lengths = self.sizes.of(sent[:, None])
        figures = of_product(
            found, errors, self.sizes, lengths, largest_of(coded), result, len(coded)
        )
        before = self.before(decoder, decoded, len(w))
        scale = float(self.largest @ np.abs(w)) / np.float64(result)
        return error, before, figures, self.textbook(machines, len(w)) * scale

    def transposed_product(self, machines, v):
        """X' v, likewise; there was no figure before."""
        code, decoder = self.code, Decoder(self.code.generator, machines)
        if self.arithmetic == "float32":
            v = v.astype("float32").astype(np.float64)
        given = v[:, None] * self.relative
        parts = given.reshape(code.recovery, -1)
        coded = np.empty_like(parts)
        decoder.decode_transposed(parts, coded)
        coded = coded.astype(self.arithmetic)
        z = np.zeros(self.X.shape[1])
        for which, u in zip(decoder.order, coded, strict=True):
            z += (u @ self.shards[machines[which] - 1].astype(self.arithmetic)).astype(np.float64)
        exact = self.X.T @ v.astype(WIDE) / WIDE(self.scales.max())
        amplifier, errors = self.amplifier(parts.shape[1] + code.recovery)
        found, of = amplifier.of(decoder, tuple(machines)), self.sizes.of_transposed
        figures = of_transposed_product(
            found,
            transposed_errors(errors, machines),
            errors,
            self.sizes,
            of(given),
            of(coded.reshape(-1, 1)),
            largest_of(z[:, None]),
            len(z),
        )
        scale = float(self.largest.max() * np.abs(given).sum() / np.abs(z).max())
        return relative_error(z, exact), np.nan, figures, self.textbook(machines, len(v)) * scale

    def amplifier(self, terms):
        """What a step of sums of so many terms has."""
        errors = answer_errors(self.code.generator, self.dtype, self.arithmetic, terms)
        return Amplifier(self.code.generator, errors), errors

    def textbook(self, machines, terms):
        """The bound of a product without a code, times what decoding makes of it."""
        matrix = self.code.generator[np.array(machines) - 1]
        factor = (np.abs(np.linalg.inv(matrix)) @ np.abs(matrix)).sum(axis=1).max()
        plain = float(gamma(terms, self.arithmetic))
        if self.dtype != self.arithmetic:
            plain += unit_roundoff(self.dtype)
        return plain * factor

    def before(self, decoder, decoded, terms):
        """The bound of earlier versions, in the units of now, as far as it could be known."""
        generator = self.code.generator
        each = float(answer_error(generator, self.dtype, self.dtype, terms).max())
        count, scale = len(decoded), likely_scale(decoded)
        size = float(np.abs(decoded).max())
        own = decoder.condition * float(gamma(4 * count**2, np.float64)) * count * size
        wrong = 3 * (scale * decoder.gain * each * count + own)
        return wrong / (size - wrong) if wrong < size else np.inf


def relative_error(found, exact):
    """The largest error over the largest entry that was found; NaN where there is nothing."""
    size = np.abs(found).max()
    return float(np.abs(found - exact).max() / size) if size else np.nan


# --- what is printed ----------------------------------------------------------------------


def report(found: list[Seen]) -> None:
    """Tables over all decodes, and by what they are of."""
    rows = [line("all", found)]
    keys = {
        "product": lambda seen: seen.product,
        "types": lambda seen: f"{seen.dtype}, {seen.arithmetic}",
        "terms": lambda seen: f"{10 ** int(np.log10(seen.terms))} terms and more",
        "vector": lambda seen: f"vector: {seen.vector}",
        "kind": lambda seen: f"X: {seen.kind}",
    }
    for key in keys.values():
        groups: dict[str, list[Seen]] = defaultdict(list)
        for seen in found:
            groups[key(seen)].append(seen)
        rows += [line(name, groups[name]) for name in sorted(groups)]
    print(
        "| | decodes | estimate below, of 1,000 | estimate / error: median | 95 % | bound below "
        "| bound / error: median | bound / textbook: median | infinite "
        "| before / error: median | before: infinite, of those below 1 |"
    )
    print("|---|" + "---|" * 10)
    print("\n".join(rows))


def line(name: str, found: list[Seen]) -> str:
    """One line of the table."""
    some = np.array([seen[6:] for seen in found])
    error, before, bound, estimate, textbook = some[some[:, 0] > 0].T
    with np.errstate(invalid="ignore"):
        likely, known = estimate / error, ~np.isnan(before)
        finite = known & np.isfinite(before)
    figures = [
        len(found),
        f"{1e3 * (likely < 1).sum() / len(found):.2f}",
        f"{np.median(likely):.1f}",
        f"{np.quantile(likely, 0.95):.0f}",
        int((bound < error).sum()),
        f"{np.median(bound / error):.0f}",
        f"{np.median(bound / textbook):.2f}",
        int(np.isinf(bound).sum()),
        f"{np.median(before[finite] / error[finite]):.1e}" if finite.any() else "",
        f"{int((np.isinf(before) & (error < 1)).sum())} of {int((known & (error < 1)).sum())}",
    ]
    return f"| {name} | " + " | ".join(map(str, figures)) + " |"


if __name__ == "__main__":
    sys.exit(main())
