"""Runs whose machines compute on different devices."""

from __future__ import annotations

import json

import pytest

from helpers.processes import await_exit_codes

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]
STRICT = "array_api_strict:cpu"


def test_hosts_on_different_devices_serve_one_run(open_accepting, join, store):
    with open_accepting(store) as checked:
        machines = [*join(1, "--device", STRICT), *join(1)]
        checked.run_until(lambda: len(checked.operator.available) == 2 and checked.recorder.records)
        for _ in range(3):
            checked.step()
        (host,) = join(1, "--device", "jax:cpu", "--machines", 2, "--memory", 0.5)
        checked.run_until(lambda: len(checked.event_machines("joined")) >= 4)
        checked.step()
        machines[0].kill()
        checked.run_until(lambda: checked.event_machines("lost"))
        checked.step()
        joined = [event for event in checked.recorder.all_events if "joined" in event]
        devices = [event.get("device") for event in joined]
        assert devices.count("jax:cpu") == 2
        assert devices[0 if devices[0] else 1] == STRICT
    assert await_exit_codes([machines[1], host]) == [0, 0]
    printed, _ = host.communicate()
    assert "computes on jax:cpu" in printed
    assert "shards of" in printed
    assert "would fit in" in printed


def test_a_host_with_an_unusable_device_does_not_join(call, conn, tmp_path):
    conn.write_text("{}")
    code, _, stderr = call(["join", conn, "--device", "cuda:99"], tmp_path)
    assert code == 2
    assert "device cuda:99: " in stderr
    assert len(stderr.splitlines()) == 1


def test_a_run_gives_each_machine_its_device(call, store, tmp_path):
    devices = f"cpu,{STRICT},cpu,{STRICT}"
    words = ["run", store.path, "svd", "k=2", "--device", devices, "--local", 4, "--out", "out"]
    code, stdout, stderr = call(words, tmp_path)
    assert code == 0, stderr
    assert "2 machines on cpu, 2 machines on array_api_strict:cpu" in stdout
    header = json.loads((tmp_path / "out" / "steps.jsonl").read_text().splitlines()[0])
    assert header["devices"] == ["", "", STRICT, "", STRICT]
