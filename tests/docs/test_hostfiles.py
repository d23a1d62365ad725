"""The page about hosts shows the examples in hostfiles, with their commands."""

from __future__ import annotations

import re

import pytest

from helpers import ROOT

EXAMPLES = sorted((ROOT / "hostfiles").iterdir())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_page_shows_the_command_and_first_host_of_each_example(path):
    text, page = path.read_text(), (ROOT / "docs/howto/hosts.md").read_text("utf-8")
    command = re.search(rf"#   (.* {re.escape(path.name)} -n 7) ", text)
    hosts = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(hosts) == 3
    (row,) = (line for line in page.splitlines() if path.name in line)
    assert f"`{command[1]}`" in row
    assert f"`{hosts[0]}`" in row
