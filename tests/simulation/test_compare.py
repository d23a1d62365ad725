"""The same machines with other schemes: which of them are possible, and why not."""

from __future__ import annotations

import json

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.machine.emulation import SpeedChange
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.baselines import BASELINES
from cec_mpi.simulation.compare import compare
from cec_mpi.simulation.scenario import MachineEvent, Outcome, Scenario


def scenario(more=(), **options):
    given = {"elastic": True, "emulate_speeds": (1.0,) * 4, **options}
    shape = {"machines": 4, "recovery": 2, "rows": 10_000, "columns": 100, "steps": 5}
    return Scenario(**shape, **dict(more), options=SessionOptions(**given))


def test_baselines_have_the_same_machines():
    assert all(isinstance(each, Outcome) for each in compare(scenario()).values())


@pytest.mark.parametrize(
    "given",
    [
        scenario({"machine_events": (MachineEvent(1e-3, 2, "lost"),)}),
        scenario(inject="kill:2@1"),
        scenario(emulate_changes=(SpeedChange(2, 1, 0.5),)),
    ],
)
def test_baselines_refuse_what_they_cannot_replay(given):
    found = compare(given)
    for name in BASELINES:
        assert isinstance(found[name], InputError)
        assert "baselines cannot be combined with" in str(found[name])
    assert isinstance(found["heterogeneous"], Outcome)


def test_what_is_read_comes_from_the_source(call, tmp_path):
    """Restarting reads X at once, 8 MB: from a server of 1 MB/s, or from four disks of 1 MB/s."""
    words = "simulate --shape 10000,100 --machines 4 --recovery 2 --steps 1 --compare --json"
    times = {}
    for source in ("server:1MB", "each:1MB", "local"):
        code, out, _ = call([*words.split(), "--source", source], tmp_path)
        assert code == 0
        times[source] = {name: each["seconds"] for name, each in json.loads(out).items()}
    assert times["server:1MB"]["restarting"] == pytest.approx(8, rel=0.01)
    assert times["each:1MB"]["restarting"] == pytest.approx(2, rel=0.01)
    assert times["server:1MB"]["fastest"] == pytest.approx(8, rel=0.01)  # two shards of 4 MB
    assert times["each:1MB"]["fastest"] == pytest.approx(4, rel=0.01)
    assert times["local"]["restarting"] < 0.01
    assert call([*words.split(), "--source", "server"], tmp_path)[0] == 2
    assert call([*words.split(), "--source", "each:fast"], tmp_path)[0] == 2
