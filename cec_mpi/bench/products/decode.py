"""Decoding of what machines answered, and what they are sent for the adjoint, beside a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cec_mpi.bench.benchmark import Benchmark, whole_numbers
from cec_mpi.bench.figures import Figure
from cec_mpi.bench.scratch import check_memory
from cec_mpi.bench.turns import in_turns, ratio
from cec_mpi.core.code.mds import make_code
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.step.codec import Codec
from cec_mpi.errors import InputError
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.processes.places import limit_threads

_SPARE = 10  # machines beyond L, or as many again
_MOST = 300  # L: each block has a decoder of L x L numbers, and there are as many as machines
_SHORT = 8_000  # rows per shard
_LONG_ENOUGH = 10**5  # rows that are decoded in one turn, together


@dataclass(frozen=True)
class Decode(Benchmark):
    """Decoders of codes, each of few long blocks and of many short ones.

    Attributes
    ----------
    recovery : tuple of int
        L, of one code each.
    megabytes : int
        Of the answers, in MiB.
    """

    what = "decode"
    title = "decoding, and coding for the adjoint: the speed over that of np.copyto of the bytes"

    recovery: tuple[int, ...] = whole_numbers((3, 10, 40), "--recovery L", "of one code each")
    megabytes: int = option(64, "--megabytes M", "of the answers", values.positive)

    def measure(self) -> list[Figure]:
        """As `Benchmark.measure`."""
        with limit_threads(1):
            return list(self._figures())

    def _figures(self) -> Iterator[Figure]:
        check_memory(f"--megabytes {self.megabytes}", 8 * (self.megabytes << 20))
        if (most := max(self.recovery)) > _MOST:
            raise InputError(f"--recovery {most}: expected at most {_MOST}")
        rng = np.random.default_rng(self.seed)
        for recovery in dict.fromkeys(self.recovery):
            machines = recovery + min(recovery, _SPARE)
            code = make_code(machines, recovery, "orthonormal", seed=self.seed)
            for kind, speeds in (
                ("equal speeds", np.ones(machines)),
                ("different speeds", rng.uniform(1, 4, machines)),
            ):
                long = max(recovery, (self.megabytes << 20) // (8 * recovery))
                for rows in dict.fromkeys((long, min(long, _SHORT))):
                    plan = plan_step(range(1, machines + 1), speeds.tolist(), recovery, rows)
                    work = np.empty(recovery * rows)
                    codec = Codec(plan, code, 1, work)
                    ways = _ways(rng, codec, recovery, rows)
                    times = in_turns(ways, self.turns, 1 + _LONG_ENOUGH // rows)
                    blocks = len(plan.assignment.starts)
                    which = f"L = {recovery}, R = {rows}, {kind}, {blocks} blocks"
                    for name in [each for each in ways if each != "copy"]:
                        called = f"{name}, {which}"
                        yield ratio(
                            times, name, "copy", called=called, peer="np.copyto", better="more"
                        )


def _ways(
    rng: np.random.Generator, codec: Codec, recovery: int, rows: int
) -> dict[str, Callable[[], object]]:
    answers, parts = rng.standard_normal(recovery * rows), rng.standard_normal((recovery, rows))
    single, other = answers.astype(np.float32), np.empty_like(answers)
    return {
        "copy": lambda: np.copyto(other, answers),
        "X w": lambda: codec.decode(answers, parts),
        "X w of float32": lambda: codec.decode(single, parts),
        "X'v": lambda: codec.coefficients(parts, other),
    }
