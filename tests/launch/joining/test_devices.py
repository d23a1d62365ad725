"""Machines with devices of different kinds in one run."""

from __future__ import annotations

import json

import pytest

import cec_mpi
from helpers.joined import exit_codes

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]
STRICT = "array_api_strict:cpu"


def test_hosts_with_and_without_a_device_serve_one_run(accepting, join, store):
    with accepting(store) as made:
        machines = [*join(1, "--device", STRICT), *join(1)]
        made.until(lambda: len(made.operator.available) == 2 and made.recorder.records)
        for _ in range(3):
            made.step()
        (host,) = join(1, "--device", "jax:cpu", "--machines", 2, "--memory", 0.5)
        made.until(lambda: len(made.happened("joined")) >= 4)
        made.step()
        machines[0].kill()
        made.until(lambda: made.happened("lost"))
        made.step()
        joined = [event for event in made.recorder.happened if "joined" in event]
        devices = [event.get("device") for event in joined]
        assert devices.count("jax:cpu") == 2
        assert devices[0 if devices[0] else 1] == STRICT
    assert exit_codes([machines[1], host]) == [0, 0]
    printed, _ = host.communicate()
    assert "computes on jax:cpu" in printed
    assert "shards of" in printed
    assert "would fit in" in printed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--device", "cuda:99"], "device cuda:99: "),
        (["--device", ""], "device '': expected cpu, auto, cuda"),
        (["--device", "cpu\n"], r"device 'cpu\n': expected cpu, auto, cuda"),
        (["--device", "gpu"], "device gpu: expected cpu, auto, cuda"),
    ],
)
def test_a_host_without_the_device_does_not_join(call, conn, tmp_path, words, expected):
    conn.write_text("{}")
    found, _, stderr = call(["join", conn, *words], tmp_path)
    assert found == 2
    assert expected in stderr
    assert len(stderr.splitlines()) == 1


def test_a_run_of_machines_of_both_kinds(call, store, tmp_path):
    words = ["run", store.path, "svd", "k=2", "--device", f"cpu,{STRICT},cpu,{STRICT}"]
    for how in (["--serial"], ["--local", "4"]):
        out = tmp_path / how[0].strip("-")
        found, stdout, stderr = call([*words, *how, "--out", out], tmp_path)
        assert found == 0, stderr
        assert "2 machines on cpu, 2 machines on array_api_strict:cpu" in stdout
        header = json.loads((out / "steps.jsonl").read_text().splitlines()[0])
        assert header["devices"] == ["", "", STRICT, "", STRICT]


@pytest.mark.parametrize("how", ["--serial", "--local=4"])
def test_a_run_without_its_device_is_refused(call, store, tmp_path, how):
    words = ["run", store.path, "svd", how, "--device", "cuda:99", "--out", tmp_path / "out"]
    found, _, stderr = call(words, tmp_path)
    assert found == 2
    assert "device cuda:99: " in stderr
    assert "has no such device" in stderr


@pytest.mark.parametrize("device", ["gpu", 3, ["cpu"]])
def test_python_joins_with_a_device_too(tmp_path, device):
    with pytest.raises(cec_mpi.errors.InputError, match="expected cpu, auto"):
        cec_mpi.join(tmp_path / "none", device=device)
