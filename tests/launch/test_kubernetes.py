"""Kubernetes manifests fit the published schemas, and a run survives the ends of its pods."""

from __future__ import annotations

import json
import secrets
import signal
from urllib.request import urlopen

import kubernetes_validate
import numpy as np
import pytest
import yaml

from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.notices import ADDRESS_VARIABLE
from cec_mpi.runtime.wire.sockets.connection_file import KEY_VARIABLE, derive_keys
from helpers import ROOT, metadata
from helpers.processes import await_error, find_free_port
from helpers.waiting import wait_for_file, wait_until

pytestmark = pytest.mark.any_mpi

MANIFESTS = {
    f"{path.stem}/{manifest['kind']}": manifest
    for path in sorted((ROOT / "containers" / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
}
JOBSET = MANIFESTS["jobset/JobSet"]
JOBS = {
    "master": MANIFESTS["master/Job"],
    "machines": MANIFESTS["machines/Job"],
    **{
        f"{job['name']} of the JobSet": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": job["name"]},
            **job["template"],
        }
        for job in JOBSET["spec"]["replicatedJobs"]
    },
}


@pytest.mark.parametrize("version", ["1.33", kubernetes_validate.latest_version()])
def test_the_published_schemas_accept_the_manifests(version):
    """A JobSet extends Kubernetes, so the schemas contain only its jobs."""
    for manifest in (*MANIFESTS.values(), *JOBS.values()):
        if manifest is not JOBSET:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_the_jobset_has_the_same_jobs():
    text = json.dumps([job["template"] for job in JOBSET["spec"]["replicatedJobs"]])
    name = "{name}-master-0-0.{name}".format(**JOBSET["metadata"])
    master, machines = json.loads(
        text.replace(name, MANIFESTS["master/Service"]["metadata"]["name"])
    )
    assert master["spec"].pop("completions") == master["spec"].pop("parallelism") == 1
    assert master["spec"] == JOBS["master"]["spec"]
    assert machines["spec"] == JOBS["machines"]["spec"]
    assert JOBSET["spec"]["successPolicy"]["targetReplicatedJobs"] == ["master"]


@pytest.mark.parametrize("name", JOBS)
def test_jobs_read_the_key_from_the_secret_whose_example_is_refused(name):
    job = JOBS[name]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (variable,) = container["env"]
    assert variable["name"] == KEY_VARIABLE
    secret = MANIFESTS["secret/Secret"]
    reference = variable["valueFrom"]["secretKeyRef"]
    assert reference["name"] == secret["metadata"]["name"]
    assert reference["key"] in secret["stringData"]
    assert secret["stringData"][reference["key"]] not in json.dumps(job)
    with pytest.raises(InputError, match="expected at least 16"):
        derive_keys(secret["stringData"][reference["key"]], True)
    claims = {volume["name"]: volume.get("persistentVolumeClaim") for volume in pod["volumes"]}
    assert (
        claims["data"]["claimName"] == MANIFESTS["volume/PersistentVolumeClaim"]["metadata"]["name"]
    )
    assert {mount["name"] for mount in container["volumeMounts"]} == claims.keys()


def test_the_service_leads_to_the_master():
    service, template = MANIFESTS["master/Service"], JOBS["master"]["spec"]["template"]
    assert service["spec"]["selector"] == template["metadata"]["labels"]
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    (port,) = service["spec"]["ports"]
    assert port["port"] == ports[port["name"]]
    assert f"--listen=:{port['port']}" in container["args"]
    assert f"--metrics=:{ports['metrics']}" in container["args"]
    (machine,) = JOBS["machines"]["spec"]["template"]["spec"]["containers"]
    assert machine["args"][1] == f"{service['metadata']['name']}:{port['port']}"


class Pods:
    """Processes with the commands and variables of pods, and directories as volumes."""

    def __init__(self, start, directory, ports, key):
        self._start, self._directory, self._key = start, directory, key
        self._replacements = {str(port): str(free) for port, free in ports.items()}
        self._replacements |= {"cec-mpi-master": "127.0.0.1", "/data": str(directory)}
        self._count = 0

    def start(self, name, *options, **variables):
        pod = JOBS[name]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        self._count += 1
        scratch = self._directory / f"pod-{self._count}"
        for mount in ("cache", "tmp"):
            (scratch / mount).mkdir(parents=True)
        words = ["cec-mpi", *container["args"], *options]
        replacements = {**self._replacements, "/cache": str(scratch / "cache")}
        for before, after in replacements.items():
            words = [word.replace(before, after) for word in words]
        variables |= {variable["name"]: self._key for variable in container["env"]}
        variables |= {"TMPDIR": str(scratch / "tmp")}
        return self._start(words, variables=variables)


def terminate(process, name):
    """End a pod as Kubernetes does: SIGTERM, and SIGKILL after the grace period."""
    process.send_signal(signal.SIGTERM)
    grace = JOBS[name]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    return process.wait(grace)


def failure_action(name, code):
    """Return the action of a Job after a pod has ended with this exit code."""
    for rule in JOBS[name]["spec"]["podFailurePolicy"]["rules"]:
        if code in rule.get("onExitCodes", {}).get("values", ()):
            return rule["action"]
    return "Count"


@pytest.mark.usefixtures("no_launcher")
def test_a_run_survives_the_ends_of_its_pods(start, make_store, tmp_path):
    X = np.random.default_rng(8).standard_normal((600, 200))
    store = make_store(X, 6, 3)
    (tmp_path / "store").symlink_to(store.path)
    ports = {port: find_free_port() for port in (5555, 9400)}
    pods = Pods(start, tmp_path, ports, secrets.token_urlsafe(32))
    no_notice = {ADDRESS_VARIABLE: f"127.0.0.1:{find_free_port()}"}
    steps, summary = tmp_path / "results" / "steps.jsonl", tmp_path / "results" / "summary.json"

    def metrics():
        with urlopen(f"http://127.0.0.1:{ports[9400]}/metrics", timeout=60) as answer:
            return answer.read().decode()

    slow = "--emulate-speeds", ",".join("1" * 6), "--emulate-base", "100"
    with metadata.serve("gcp") as service:
        master = pods.start("master", *slow)
        spot = pods.start("machines", **{ADDRESS_VARIABLE: service.address})
        machines = [pods.start("machines", **no_notice) for _ in range(5)]
        wait_for_file(steps, '"step"', master)
        wait_until(lambda: 'cec_mpi_machines{state="available"} 6' in metrics(), master)
        terminated = machines.pop()
        assert failure_action("machines", terminate(terminated, "machines")) == "Ignore"
        killed = machines.pop()
        killed.kill()
        assert failure_action("machines", killed.wait()) == "Count"
        service.is_preempted.set()
        wait_until(lambda: spot.poll() is not None)
        assert failure_action("machines", spot.returncode) == "Ignore"
        machines += [pods.start("machines", **no_notice) for _ in range(3)]
        wait_until(lambda: 'cec_mpi_events_total{kind="lost"} 1' in metrics(), master)
        wait_until(lambda: 'cec_mpi_events_total{kind="left"} 2' in metrics(), master)
        wait_until(lambda: 'cec_mpi_machines{state="available"} 6' in metrics(), master)
        assert not summary.exists()
        assert failure_action("master", terminate(master, "master")) == "Count"
        restarted = pods.start("master")
        assert restarted.wait(200) == 0, await_error(restarted)
    assert [machine.wait(200) for machine in machines] == [0] * 6
    values = np.load(tmp_path / "results" / "result.npy")
    np.testing.assert_allclose(values, np.linalg.svd(X, compute_uv=False)[:3])
    assert summary.exists()
