"""How close the error figures of steps are to the true errors.

    python scripts/campaigns/error_figures.py [--seed I] [--decodes 1000000] [--seconds S]

Each case is a code of some family, systematic or not, some sets of L machines, the worst that a
search finds among them, X of some kind, and some vectors. Each vector is multiplied, decoded from
each set and compared with a product in long doubles; or by blocks of columns; or with a set of its
own for each piece of rows; or as an adjoint. Prints how often each figure was
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
from cec_mpi.core.accuracy.rounding import answer_error, gamma, is_exact, unit_roundoff
from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import MDSCode, make_code
from cec_mpi.core.deviation.amplification import (
    answer_errors,
    largest,
    transposed_errors,
)
from cec_mpi.core.deviation.amplifier import Amplifier
from cec_mpi.core.deviation.figures import of_product, of_transposed_product
from cec_mpi.core.deviation.lengths import TermSizes, largest_of
from cec_mpi.errors import CecError

SIZES = [(3, 1), (4, 2), (6, 3), (8, 5), (12, 8), (20, 10), (30, 15), (40, 20), (60, 10)]
TYPES = [("float32", "float64"), ("float32", "float32"), ("float64", "float64")]
VECTORS_OF_CASE, SETS_OF_CASE = 16, 8
MOST_ENTRIES = 200_000  # of X, where its rows are long: two rows for each machine at least
COLUMNS_OF_BLOCK = 4
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


NARROW = {"signs": "int8", "binary": "bool", "counts": "uint8"}  # which hold them exactly


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

    def one(self, rng, dtype) -> tuple[MDSCode, list[list[int]]]:
        """Any of those that can be had with this dtype, and sets of L machines."""
        while True:
            machines, recovery = SIZES[rng.integers(len(SIZES))]
            family, systematic = sorted(FAMILIES)[rng.integers(len(FAMILIES))], rng.random() < 0.3
            key = machines, recovery, family, systematic, dtype
            if key not in self._made:
                self._made[key] = self._make(*key)
            found = self._made[key]
            if found is not None:
                code, worst = found
                some = [
                    np.sort(rng.choice(machines, recovery, replace=False)) + 1
                    for _ in range(SETS_OF_CASE)
                ]
                sets = [worst if k % 2 else each.tolist() for k, each in enumerate(some)]
                return code, sets

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
    """Steps with one X, each vector on each set of machines, or some with others."""
    dtype, arithmetic = TYPES[rng.integers(len(TYPES))]
    code, sets = codes.one(rng, dtype)
    transposed, most = rng.random() < 0.3, round(10 ** rng.uniform(1, 4))
    rows, columns = int(rng.integers(2, 12)), most
    rows = max(2, min(rows, MOST_ENTRIES // (code.recovery * columns)))
    if transposed:
        rows, columns = max(2, most // code.recovery), int(rng.integers(2, 40))
    kind = list(MATRICES)[rng.integers(len(MATRICES))]
    X = MATRICES[kind](rng, code.recovery * rows, columns)
    if rng.random() < 0.5:
        X = X.astype(NARROW.get(kind, dtype))
    store = Store(X, code, dtype, arithmetic, scaled=rng.random() < 0.5)
    names, vectors = [], []
    for _ in range(VECTORS_OF_CASE):
        which = VECTORS[rng.integers(len(VECTORS))]
        given = vector(which, X.T if transposed else X, rng)
        if np.isfinite(given).all() and given.any():
            names.append(which)
            vectors.append(given / np.abs(given).max())
    if not vectors:
        return
    W, together = np.array(vectors).T, rng.random()
    if transposed:
        name, steps = "X' v", store.transposed_products(sets, W)
    elif together < 0.15:
        name, steps = "X W", store.blocks(sets, W)
        names = names[::COLUMNS_OF_BLOCK]
    elif together < 0.35:
        name, steps = "X w, several sets", store.pieces(sets, W, rng)
    else:
        name, steps = "X w", store.products(sets, W)
    for k, (error, before, figures, textbook) in steps:
        if np.isfinite(error):
            yield Seen(
                name, kind, names[k], dtype, arithmetic, most, error, before, *figures, textbook
            )


class Store:
    """A code, X as it is given, and its shards."""

    def __init__(self, X, code, dtype, arithmetic, scaled):
        self.X, self.code, self.dtype, self.arithmetic = X.astype(WIDE), code, dtype, arithmetic
        self.rounded = not is_exact(X.dtype, dtype)
        kept = X.astype(dtype)
        exponents = np.zeros(len(X), np.int64)
        if scaled:
            out = np.empty_like(kept)
            exponents = equilibrate(kept, out, np.empty_like(kept)).astype(np.int64)
            kept = out
        self.scales = np.ldexp(1.0, exponents)[:, None]
        self.relative = np.ldexp(1.0, exponents - exponents.max())[:, None]
        parts = kept.reshape(code.recovery, -1, X.shape[1])
        self.rows = parts.shape[1]
        self.shards = np.empty((code.machines, *parts.shape[1:]), dtype)
        code.encode(parts, self.shards)
        self.shards = self.shards.astype(arithmetic)
        plain = kept.astype(np.float64)
        self.largest = np.abs(plain).max(axis=0)
        self.sizes = TermSizes(self.largest, np.sqrt((plain**2).mean(axis=0)))

    def products(self, sets, W):
        """X w: the error, the figures before and now, and the textbook's bound."""
        sent, exact, errors, amplifier = self.step(W)
        answers = self.answers(sent)
        lengths = [self.sizes.of(sent[:, k : k + 1]) for k in range(sent.shape[1])]
        for machines in sets:
            decoder, decoded = self.decoded(machines, answers)
            found = amplifier.of(decoder, tuple(machines))
            textbook = self.textbook(machines, len(W))
            for k in range(sent.shape[1]):
                x = decoded[:, :, k]
                y = x.reshape(-1, 1)
                error = relative_error(y * self.scales, exact[:, k : k + 1])
                figures = self.figures(found, errors, lengths[k], y, sent[:, k], textbook)
                yield k, (error, self.before(decoder, x, len(W)), *figures)

    def pieces(self, sets, W, rng):
        """X w, of which pieces of rows are decoded from different sets."""
        sent, exact, errors, amplifier = self.step(W)
        answers = self.answers(sent)
        lengths = [self.sizes.of(sent[:, k : k + 1]) for k in range(sent.shape[1])]
        every = []
        for machines in sets:
            decoder, decoded = self.decoded(machines, answers)
            found = amplifier.of(decoder, tuple(machines))
            every.append((decoded, found, self.textbook(machines, len(W))))
        for _ in sets:
            used = rng.integers(len(sets), size=min(self.rows, rng.integers(2, 5)))
            of_row = np.sort(np.resize(used, self.rows))
            x = np.stack([every[which][0][:, row] for row, which in enumerate(of_row)], axis=1)
            found = largest(every[which][1] for which in used)
            textbook = max(every[which][2] for which in used)
            for k in range(sent.shape[1]):
                y = x[:, :, k].reshape(-1, 1)
                error = relative_error(y * self.scales, exact[:, k : k + 1])
                figures = self.figures(found, errors, lengths[k], y, sent[:, k], textbook)
                yield k, (error, np.nan, *figures)

    def blocks(self, sets, W):
        """X W of some columns."""
        sent, exact, errors, amplifier = self.step(W)
        for k, first in enumerate(range(0, sent.shape[1], COLUMNS_OF_BLOCK)):
            of = slice(first, first + COLUMNS_OF_BLOCK)
            block = np.ascontiguousarray(sent[:, of])
            answers = (self.shards.reshape(-1, len(W)) @ block).astype(np.float64)
            answers = answers.reshape(len(self.shards), self.rows, -1)
            lengths = self.sizes.of(block)
            for machines in sets:
                decoder, decoded = self.decoded(machines, answers)
                found = amplifier.of(decoder, tuple(machines))
                y, textbook = decoded.reshape(-1, block.shape[1]), self.textbook(machines, len(W))
                error = relative_error(y * self.scales, exact[:, of])
                yield (
                    k,
                    (
                        error,
                        np.nan,
                        *self.figures(found, errors, lengths, y, block, textbook),
                    ),
                )

    def transposed_products(self, sets, V):
        """X' v, likewise; there was no figure before."""
        code = self.code
        if self.arithmetic == "float32":
            V = V.astype("float32").astype(np.float64)
        exact = self.X.T @ V.astype(WIDE) / WIDE(self.scales.max())
        given = V * self.relative
        of = self.sizes.of_transposed
        of_given = [of(given[:, k : k + 1]) for k in range(V.shape[1])]
        errors, amplifier = self.amplifier(self.rows + code.recovery)
        for machines in sets:
            decoder = Decoder(code.generator, machines)
            parts = given.reshape(code.recovery, -1)
            coded = np.empty_like(parts)
            decoder.decode_transposed(parts, coded)
            coded = coded.astype(self.arithmetic).reshape(code.recovery, self.rows, -1)
            rows = np.ascontiguousarray(coded.transpose(0, 2, 1))[:, :, None]
            order = np.asarray(machines)[list(decoder.order)] - 1
            z = (rows @ self.shards[order][:, None]).astype(np.float64).sum(axis=0)[:, 0].T
            found = amplifier.of(decoder, tuple(machines))
            terms = transposed_errors(errors, machines)
            textbook = self.textbook(machines, len(V)) * self.largest.max()
            for k in range(V.shape[1]):
                u, each = coded[:, :, k].reshape(-1, 1), z[:, k : k + 1]
                figures = of_transposed_product(
                    found, terms, errors, self.sizes, of_given[k], of(u), largest_of(each), len(z)
                )
                with np.errstate(all="ignore"):
                    scale = np.abs(given[:, k]).sum() / np.abs(each).max()
                error = relative_error(each, exact[:, k : k + 1])
                yield k, (error, np.nan, figures, textbook * scale)

    def step(self, W):
        """What is sent of some vectors, the exact products with it, and what a step has."""
        sent = W.astype(self.arithmetic)
        return sent, self.X @ sent.astype(WIDE), *self.amplifier(len(W))

    def answers(self, sent):
        """Of all machines, one vector after the other: (N, rows, vectors)."""
        rows = self.shards.reshape(-1, len(sent))
        found = np.stack([rows @ np.ascontiguousarray(w) for w in sent.T], axis=-1)
        return found.astype(np.float64).reshape(len(self.shards), self.rows, -1)

    def decoded(self, machines, answers):
        """The decoder of a set, and (L, rows, vectors) that it makes."""
        decoder = Decoder(self.code.generator, machines)
        values = answers[np.asarray(machines)[list(decoder.order)] - 1]
        values = values.reshape(len(values), -1)
        found = np.empty_like(values)
        decoder.decode(values, found)
        return decoder, found.reshape(len(values), self.rows, -1)

    def figures(self, found, errors, lengths, coded, W, textbook):
        """Those of X W, and the textbook's bound."""
        result = largest_of(coded * self.relative)
        figures = of_product(
            found, errors, self.sizes, lengths, largest_of(coded), result, len(coded)
        )
        with np.errstate(all="ignore"):
            scale = float(np.max(self.largest @ np.abs(W) / np.float64(result)))
        return figures, textbook * scale

    def amplifier(self, terms):
        """What a step of sums of so many terms has."""
        generator = self.code.generator
        errors = answer_errors(generator, self.dtype, self.arithmetic, terms, rounded=self.rounded)
        return errors, Amplifier(generator, errors)

    def textbook(self, machines, terms):
        """The bound of a product without a code, times what decoding makes of it."""
        matrix = self.code.generator[np.array(machines) - 1]
        factor = (np.abs(np.linalg.inv(matrix)) @ np.abs(matrix)).sum(axis=1).max()
        plain = float(gamma(terms, self.arithmetic))
        if self.rounded:
            plain += unit_roundoff(self.dtype)
        return plain * factor

    def before(self, decoder, decoded, terms):
        """The bound of earlier versions, in the units of now, as far as it could be known."""
        generator = self.code.generator
        each = float(answer_error(generator, self.dtype, self.dtype, terms).max())
        count, scale = len(decoded), likely_scale(decoded)
        size = float(np.abs(decoded).max())
        own = decoder.condition * float(gamma(4 * count**2, np.float64)) * count * size
        gain = np.abs(decoder.inverse()).sum(axis=1).max()
        wrong = 3 * (scale * gain * each * count + own)
        return wrong / (size - wrong) if wrong < size else np.inf


def relative_error(found, exact):
    """The largest error over the largest entry found, of the worst column; NaN if one is 0."""
    sizes = np.abs(found).max(axis=0)
    return float((np.abs(found - exact).max(axis=0) / sizes).max()) if sizes.all() else np.nan


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
