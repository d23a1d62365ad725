"""What tests need that is not everywhere (`needs.py`), and the list of what was skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cec_mpi.runtime.launchers import detect_launcher

sys.path.append(str(Path(__file__).parent))

from needs import NEEDS, reason_to_skip


def pytest_configure(config):
    config.addinivalue_line("markers", f"needs(what): any of {', '.join(NEEDS)}; tests/needs.py")


def pytest_collection_modifyitems(items):
    for item in items:
        for mark in item.iter_markers("needs"):
            reasons = [reason for what in mark.args if (reason := reason_to_skip(what))]
            if reasons:
                item.add_marker(pytest.mark.skip(reason=reasons[0]))


def pytest_terminal_summary(terminalreporter):
    """Say what was skipped to whoever runs several stages and names a file for it."""
    launcher = detect_launcher()
    if "CEC_SKIPPED" not in os.environ or (launcher and launcher.rank):
        return
    with Path(os.environ["CEC_SKIPPED"]).open("a") as file:
        for report in terminalreporter.stats.get("skipped", ()):
            path, _, reason = report.longrepr
            print(f"{Path(path).name}: {reason.removeprefix('Skipped: ')}", file=file)
