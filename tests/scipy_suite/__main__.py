"""Run SciPy's own tests on coded operators.

With ``--stores float32`` all stores have float32, and only `expected.FLOAT32_TESTS` run. By default
stores have the dtype of the matrices.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest
import scipy

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from scipy_suite.expected import MODULES  # noqa: E402 - needs sys.path
from scipy_suite.plugin import STORES  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", choices=("float32",), default="")
    arguments, options = parser.parse_known_args()  # of this program, and of pytest
    os.environ[STORES] = arguments.stores
    settings = ["-c", str(HERE / "pytest.ini"), f"--rootdir={Path(scipy.__file__).parent}"]
    settings += ["-p", "no:cacheprovider", "-p", "scipy_suite.plugin"]
    modules = [f"scipy.sparse.linalg.{name}" for name in MODULES]
    return int(pytest.main([*settings, *options, "--pyargs", *modules]))


sys.exit(main())
