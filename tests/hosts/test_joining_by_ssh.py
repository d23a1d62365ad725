"""Machines that a loop of ssh starts join a run that is no job of MPI."""

import json
import re

import numpy as np
import pytest

from helpers import ROOT

pytestmark = [pytest.mark.any_mpi, pytest.mark.needs("hosts")]


@pytest.mark.usefixtures("nothing_is_left")
def test_the_loop_of_the_page_starts_machines_on_each_host(hosts, made, tmp_path):
    page = (ROOT / "docs" / "howto" / "joining.md").read_text()
    (loop,) = re.findall(r"\n    (for host in .*?\n    done\n    wait\n)", page, re.DOTALL)
    assert "desk laptop attic" in loop
    assert "~/conn" in loop
    loop = loop.replace("desk laptop attic", " ".join(hosts.names))
    run = f"cec-mpi run {made.store} --out {tmp_path}/out --vectors {made.vectors}"
    script = f"{run} --accept ~/conn --wait &\n{loop}".replace("~/conn", f"{tmp_path}/conn")
    done = hosts.on("node1", "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "out" / "result.npy")
    np.testing.assert_allclose(found, made.expected, atol=1e-9)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["steps"] == len(found)
