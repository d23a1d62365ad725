"""Run SciPy's own tests on coded operators; the options are those of pytest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import scipy

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from scipy_suite.expected import MODULES  # noqa: E402 - needs sys.path

settings = ["-c", str(HERE / "pytest.ini"), f"--rootdir={Path(scipy.__file__).parent}"]
settings += ["-p", "no:cacheprovider", "-p", "scipy_suite.plugin"]
modules = [f"scipy.sparse.linalg.{name}" for name in MODULES]
sys.exit(pytest.main([*settings, *sys.argv[1:], "--pyargs", *modules]))
