"""How long a start may take, and who says that it took longer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cec_mpi import open_operator
from cec_mpi.errors import InputError
from cec_mpi.processes.ending import claim
from cec_mpi.processes.together import seconds_to_meet
from helpers.waiting import LIMIT


def test_more_ranks_have_more_time():
    assert 60 <= seconds_to_meet(None, 1) < seconds_to_meet(None, 100)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "soon", [3]])
def test_a_limit_is_a_positive_number(seconds, small_store):
    with pytest.raises(InputError, match="start_timeout"):
        seconds_to_meet(seconds, 4)
    with (
        pytest.raises(InputError, match="start_timeout"),
        open_operator(small_store, None, start_timeout=seconds),
    ):
        pass


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """The private directory of a launcher."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("PMIX_SERVER_TMPDIR", str(tmp_path))
    monkeypatch.setenv("PMIX_NAMESPACE", "prterun/../x@1")
    return tmp_path


def test_the_first_rank_of_a_node_has_the_word(directory):
    assert claim("word") is True
    assert claim("word") is False
    assert [path.parent for path in directory.iterdir()] == [directory]


CLAIM = "from cec_mpi.processes.ending import claim; print(claim('word'), flush=True); input()"


def test_what_others_may_write_to_says_nothing(directory):
    """A claim that somebody else could have planted there would silence all ranks."""
    directory.chmod(0o777)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CLAIM]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    try:
        said = [rank.stdout.readline().strip() for rank in ranks]
    finally:
        for rank in ranks:
            rank.communicate("\n", timeout=LIMIT)
    assert sorted(said) == ["False", "True"]  # by what they have in common: this process
    assert not list(directory.iterdir())
