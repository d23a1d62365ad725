"""Nodes as Slurm writes them in short."""

from __future__ import annotations

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.nodelist import expand_nodelist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a-1.example.org,b", ["a-1.example.org", "b"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[09-11]", ["n09", "n10", "n11"]),
        ("n[1,3-4]x,m[2]", ["n1x", "n3x", "n4x", "m2"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_nodes_that_slurm_writes_in_short(text, names):
    assert expand_nodelist(text) == names


@pytest.mark.parametrize(
    "text", ["n[1-2", "n[2-1]", "n[1-]", "n[1-999999999]", "n[1-9999]m[1-9999]", "a,,b", "$(x)"]
)
def test_a_list_that_cannot_be_read(text):
    with pytest.raises(InputError):
        expand_nodelist(text)
