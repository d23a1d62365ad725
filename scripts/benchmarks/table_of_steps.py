"""Print the tables of "A step" in docs/performance.md; takes five minutes on an idle computer.

    python scripts/benchmarks/table_of_steps.py [--before CLONE]

With another clone, both are measured in turns, and a second table shows the other clone.
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


def run_benchmark(script: str, *arguments: object) -> dict[tuple[str, str], float]:
    """Run a benchmark; return the medians of its figures by name and reference."""
    output = measure.run([sys.executable, HERE / script, *arguments, "--json"])
    figures: list[dict[str, Any]] = json.loads(output)["figures"]
    return {(item["name"], item["over"]): item["quartiles"][1] for item in figures}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, metavar="CLONE")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600, help="time limit of each part")
    options = parser.parse_args()
    turns: list[object] = ["--turns", options.turns, "--seed", options.seed]
    turns += ["--seconds", options.seconds]
    before = ["--before", options.before] if options.before else []
    tables: dict[str, dict[tuple[str, str], float]] = {}
    for name, (rows, columns, machines, recovery, steps) in SIZES.items():
        size = "--rows", rows, "--columns", columns, "--machines", machines, "--recovery", recovery
        tables[name] = run_benchmark(
            "steps.py", "lockstep", *size, "--steps", steps, *turns, *before
        )
    for suffix in ["", ", before"] if before else [""]:
        first = next(iter(tables.values()))
        keys = [key for key in first if key[0].endswith(", before") == bool(suffix)]
        print(f"\n|  | over | {' | '.join(tables)} |\n|---|---|{'---:|' * len(tables)}")
        for name, over in keys:
            cells = (f"{table[name, over]:.3g}" for table in tables.values())
            print(f"| {name} | {over} | {' | '.join(cells)} |")
    for script, part in ("local.py", "steps"), ("steps.py", "elastic"):
        print(f"\n{script} {part}")
        for (name, over), value in run_benchmark(script, part, *turns).items():
            print(f"| {name} | {over} | {value:.3g} |")


if __name__ == "__main__":
    main()
