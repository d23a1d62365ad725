"""Plans of a step beside those of the older scheme."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from cec_mpi.bench.benchmark import Benchmark
from cec_mpi.bench.figures import Figure
from cec_mpi.bench.turns import in_turns, ratio, seconds
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.plan.scheme import SCHEMES
from cec_mpi.errors import InputError
from cec_mpi.options import values
from cec_mpi.options.option import option

_MOST = 100_000  # machines, as stores may have
_MOST_PLACES = 1 << 24  # N L, of a cyclic plan: with more it takes seconds, and gigabytes


@dataclass(frozen=True)
class Plan(Benchmark):
    """Whole-row loads, Algorithm 1, its check and its layout along the rows.

    Attributes
    ----------
    machines : int
        N, all available.
    rows : int
        R, per shard.
    """

    what = "plan"
    title = (
        "plans, by L and kinds of speeds: in seconds, and over those of the cyclic scheme where "
        "N L is at most 16 million"
    )

    machines: int = option(1_000, "--machines N", "all available", values.positive)
    rows: int = option(100_000, "--rows R", "per shard", values.positive)

    def measure(self) -> list[Figure]:
        """As `Benchmark.measure`."""
        if self.machines > _MOST:
            raise InputError(f"--machines {self.machines}: expected at most {_MOST}")
        return list(self._figures())

    def _figures(self) -> Iterator[Figure]:
        rng = np.random.default_rng(self.seed)
        several = self.machines
        everyone = range(1, several + 1)
        kinds = {
            "uniform": rng.uniform(1, 4, several),
            "powers of 2": rng.choice([1.0, 2.0, 4.0], several),
            "equal": np.ones(several),
        }
        tenths = [several * tenth // 10 for tenth in (1, 3, 5, 9)]
        for recovery in sorted({max(1, min(each, several)) for each in (3, 10, *tenths)}):
            compared = several * recovery <= _MOST_PLACES
            for name, speeds in kinds.items():
                plan = partial(plan_step, everyone, speeds.tolist(), recovery, self.rows)
                schemes = SCHEMES if compared else ("heterogeneous",)
                ways = {str(scheme): partial(plan, scheme=scheme) for scheme in schemes}
                times = in_turns(ways, self.turns)
                called = f"L = {recovery}, {name} speeds"
                if compared:
                    peer = "the cyclic plan"
                    yield ratio(times, "heterogeneous", "cyclic", called=called, peer=peer)
                yield seconds(times, "heterogeneous", called=called)
