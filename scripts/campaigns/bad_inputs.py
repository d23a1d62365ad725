"""Bad inputs: each must end with one message and the exit code of its kind.

Starts commands of cec_mpi with files, options, stores and numbers of ranks that cannot
be used, and checks that each ends in time, with the right exit code and with exactly one
message, and that it leaves no process behind:

    python scripts/campaigns/bad_inputs.py [--seed I] [--count K]

Prints a line for each that does not, and then how many were tried and how many wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.bad_inputs import attempt, cases, make_good_files
from helpers.commands import mpirun


def main() -> int:
    arguments = parse()
    if mpirun() is None:
        raise SystemExit("mpirun is not on PATH")
    chosen = cases(arguments.seed, arguments.count)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="cec-bad-inputs-") as temporary:
        top = Path(temporary)
        make_good_files(top / "good")
        for number, case in enumerate(chosen):
            problem = attempt(case, top / str(number), top / "good")
            if problem is not None:
                wrong += 1
                print(f"WRONG {case.name}: cec-mpi {case.words[:200]}\n      {problem}", flush=True)
    print(f"{len(chosen)} cases, {wrong} wrong")
    return 1 if wrong else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/campaigns/bad_inputs.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=0, help="draws the cases and their order")
    parser.add_argument(
        "--count", type=int, default=100, metavar="K", help="how many (default 100; 600 for all)"
    )
    arguments = parser.parse_args()
    if arguments.count < 1:
        parser.error(f"--count {arguments.count}: expected at least 1")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
