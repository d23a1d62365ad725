"""Markdown of "A step" in docs/performance.md, in at most five minutes on a quiet computer.

    python scripts/benchmarks/table_of_steps.py [--before CLONE]

With another clone its figures come in turn with those of this one, in a second table.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import measure

HERE = Path(__file__).parent
SIZES = {
    "600 x 600, 7 ranks": (600, 600, 6, 3, 300),
    "600 x 600, 2 ranks": (600, 600, 1, 1, 300),
    "24,000 x 1,000, 7 ranks": (24000, 1000, 6, 3, 60),
    "24,000 x 1,000, 3 ranks": (24000, 1000, 2, 2, 60),
    "6,000 x 6,000, 21 ranks": (6000, 6000, 20, 10, 40),
}


def found(script: str, *words: object) -> dict[tuple[str, str], float]:
    """The medians of a benchmark, by what was measured and over what."""
    told = measure.run([sys.executable, HERE / script, *words, "--json"])
    figures: list[dict[str, Any]] = json.loads(told)["figures"]
    return {(each["name"], each["over"]): each["quartiles"][1] for each in figures}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, metavar="CLONE")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600, help="after which a part is ended")
    chosen = parser.parse_args()
    turns: list[object] = ["--turns", chosen.turns, "--seed", chosen.seed]
    turns += ["--seconds", chosen.seconds]
    before = ["--before", chosen.before] if chosen.before else []
    tables: dict[str, dict[tuple[str, str], float]] = {}
    for name, (rows, columns, machines, recovery, steps) in SIZES.items():
        size = "--rows", rows, "--columns", columns, "--machines", machines, "--recovery", recovery
        tables[name] = found("steps.py", "lockstep", *size, "--steps", steps, *turns, *before)
    for suffix in ["", ", before"] if before else [""]:
        first = next(iter(tables.values()))
        mine = [key for key in first if key[0].endswith(", before") == bool(suffix)]
        print(f"\n|  | over | {' | '.join(tables)} |\n|---|---|{'---:|' * len(tables)}")
        for name, over in mine:
            cells = (f"{table[name, over]:.3g}" for table in tables.values())
            print(f"| {name} | {over} | {' | '.join(cells)} |")
    for script, part in ("local.py", "steps"), ("steps.py", "elastic"):
        print(f"\n{script} {part}")
        for (name, over), value in found(script, part, *turns).items():
            print(f"| {name} | {over} | {value:.3g} |")


if __name__ == "__main__":
    main()
