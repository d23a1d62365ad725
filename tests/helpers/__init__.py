"""Code that tests and scripts share; no test imports a script."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
