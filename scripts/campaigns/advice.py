"""Intervals of advise: how often they cover the mean that many more runs have.

    python scripts/campaigns/advice.py [--questions 1000] [--runs 20000]

Asks questions of the kind of `docs/howto/advise.md` with other seeds, and forecasts a choice for
each: six workstations with several probabilities and lengths of outages, and 16 nodes with the
included trace. Prints for each kind the share of intervals that cover the mean of `--runs` runs
(of a trace: of all start times), and the share of single runs between the quantiles. Fails if the
intervals of all kinds together cover less than 0.93 or more than 0.97.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cec_mpi.availability import read_availability
from cec_mpi.simulation.choices import AdviceRequest, Choice, MachineGroup
from cec_mpi.simulation.forecast import Forecaster
from cec_mpi.text.terminal import format_table

GB = 10**9
LOWEST, HIGHEST = 0.93, 0.97


def kinds() -> Iterator[tuple[str, AdviceRequest, Choice]]:
    """Yield questions, each with its name and a choice."""
    groups = [MachineGroup(2, 1), MachineGroup(3, 2), MachineGroup(1, 4)]
    question = AdviceRequest(rows=4_000_000, columns=1000, groups=groups, steps=10_000)
    carried = Choice(machines=12, recovery=8, carried=(1, 1, 2, 2, 2, 4), away=1)
    for probability in (0.85, 0.9, 0.95):
        for minutes in (5, 30, 120):
            asked = replace(question, probability=probability, tick_seconds=60.0 * minutes)
            yield f"workstations, {probability}, {minutes} min, L = 8 of 12", asked, carried
            plain = Choice(machines=6, recovery=4, away=2)
            yield f"workstations, {probability}, {minutes} min, L = 4 of 6", asked, plain
    trace = AdviceRequest(
        rows=20_000_000,
        columns=1000,
        groups=[MachineGroup(16)],
        availability=lambda machines: read_availability(["example"], machines),
        steps=20_000,
    )
    for recovery in (8, 10):
        yield f"example, L = {recovery} of 16", trace, Choice(machines=16, recovery=recovery)


def many_runs(question: AdviceRequest, choice: Choice, runs: int) -> np.ndarray:
    """Return the seconds of many runs, or of runs from all start times of a trace."""
    forecaster = Forecaster(question)
    return forecaster.run_seconds(choice, range(10**6, 10**6 + runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=20_000)
    options = parser.parse_args()
    asked = list(kinds())
    each = math.ceil(options.questions / len(asked))
    rows, covered = [], 0
    for name, question, choice in asked:
        runs = many_runs(question, choice, options.runs if question.probability else 3000)
        mean, hits, inside, widths = runs.mean(), 0, [], []
        for seed in range(each):
            found = Forecaster(replace(question, first_seed=10_000 * seed)).forecast(choice, True)
            assert found is not None
            hits += found.total.low <= mean <= found.total.high
            widths.append((found.total.high - found.total.low) / mean)
            low, high = found.single_run
            inside.append(((low <= runs) & (runs <= high)).mean())
        covered += hits
        rows.append(
            [name, f"{hits / each:.3f}", f"{np.median(widths):.1%}", f"{np.mean(inside):.3f}"]
        )
        print(rows[-1], flush=True)
    share = covered / (each * len(asked))
    rows.append(["all", f"{share:.3f}", "", ""])
    head = ["question", "covered", "width", "runs between quantiles"]
    print("\n".join(format_table(head, rows, head[1:])))
    if not LOWEST <= share <= HIGHEST:
        sys.exit(f"intervals cover {share:.3f} of the means, expected {LOWEST} to {HIGHEST}")


if __name__ == "__main__":
    main()
