"""deploy/prefect.yaml on a real server: work pool, worker, runs by schedule and by hand, seen through the API."""

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from processes import ROOT, start, stop, until
from test_flows import artifacts, client, write_corpus

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:prefect", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
FILES = sorted((ROOT / "deploy").rglob("*.yaml"))
DEPLOYMENTS = [
    pytest.param(deployment, id=deployment["name"])
    for file in FILES
    if file.name == "prefect.yaml"
    for deployment in yaml.safe_load(file.read_text())["deployments"]
]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_every_deployment_fits_its_flow(deployment):
    from prefect.flows import load_flow_from_entrypoint

    flow = load_flow_from_entrypoint(deployment["entrypoint"])
    checked = flow.validate_parameters(deployment["parameters"])
    assert checked["features"] == deployment["parameters"]["features"]
    assert deployment["schedules"][0]["cron"]


def test_the_compose_file_opens_ports_on_this_machine_only():
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    assert {"postgres", "prefect", "worker", "dask-scheduler", "dask-worker", "store"} <= set(services)
    for name, service in services.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        for variable, value in (service.get("environment") or {}).items():
            if "PASSWORD" in variable or "SECRET" in variable or "AUTH" in variable:
                assert value.startswith("${"), f"{name} has the secret {variable} written out"


@pytest.mark.parametrize("file", [f for f in FILES if f.parent.name == "kubernetes" and f.name == "dask.yaml"], ids=lambda f: f.name)
def test_every_manifest_says_what_it_is(file):
    for document in yaml.safe_load_all(file.read_text()):
        assert document["apiVersion"]
        assert document["kind"]
        assert document["metadata"]["namespace"] == "bigfs"


def test_the_image_is_built_from_what_is_tested():
    lines = (ROOT / "deploy" / "Dockerfile").read_text()
    assert "--constraint deploy/constraints.txt" in lines
    for name in (line.split()[1] for line in lines.splitlines() if line.startswith("COPY") and "--from" not in line):
        assert (ROOT / name).exists() or name == "README.md", name


def test_the_slurm_script_is_one():
    script = ROOT / "deploy" / "slurm" / "bigfs.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.read_text().startswith("#!/bin/bash")


# --- on a server ----------------------------------------------------------------------------------


def test_the_server_refuses_who_has_no_password(prefect_server):
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(urllib.request.Request(f"{prefect_server.url}/flows/filter", method="POST"), timeout=30)


@pytest.fixture
def deployed(prefect, tmp_path):
    """deploy/prefect.yaml's nightly, every few seconds, on a process pool with a worker."""
    write_corpus(tmp_path / "corpus.svm", seed=3)
    plan = yaml.safe_load((ROOT / "deploy" / "prefect.yaml").read_text())
    nightly = plan["deployments"][0]
    nightly["schedules"] = [{"interval": 10, "active": True}]
    nightly["parameters"] |= {"source": str(tmp_path / "corpus.svm"), "features": 12, "engine": {"workers": 0}}
    nightly["concurrency_limit"]["collision_strategy"] = "ENQUEUE"
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump({**plan, "deployments": [nightly]}))
    prefect_cli = [sys.executable, "-m", "prefect"]
    env = prefect.env | {"PREFECT_LOCAL_STORAGE_PATH": str(tmp_path / "results")}
    for command in (["work-pool", "create", "bigfs", "--type", "process"], ["--no-prompt", "deploy", "--all"]):
        done = subprocess.run([*prefect_cli, *command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
    worker = start([*prefect_cli, "worker", "start", "--pool", "bigfs", "--limit", "1"], tmp_path / "worker.log", env, tmp_path)
    try:
        yield tmp_path
    finally:
        with client() as api:
            api.pause_deployment(api.read_deployment_by_name("bigfs/nightly").id)
        stop(worker)


def test_a_deployment_runs_by_schedule_and_by_hand(deployed):
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId

    with client() as api:
        deployment = api.read_deployment_by_name("bigfs/nightly")
        asked = api.create_flow_run_from_deployment(deployment.id, parameters={"features": 6, "out": "runs/by-hand"})
    mine = DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id]))

    def completed():
        with client() as api:
            runs = api.read_flow_runs(deployment_filter=mine)
        ended = [r for r in runs if r.state.is_final()]
        assert all(r.state.is_completed() for r in ended), [(r.state.name, r.state.message) for r in ended]
        scheduled = [r for r in ended if r.auto_scheduled]
        return scheduled if len(scheduled) >= 2 and asked.id in {r.id for r in ended} else None

    scheduled = until(completed, "two runs by schedule and one by hand", 400, every=1.0)
    assert {"bigfs", "nightly"} <= set(scheduled[0].tags)
    assert (deployed / "runs" / "nightly" / "report.html").exists()
    assert len(Path(deployed / "runs" / "by-hand" / "selected.csv").read_text().splitlines()) == 7
    first = min(scheduled, key=lambda r: r.start_time)
    shown = artifacts(first.state)
    assert {"selected", "accuracy", "accuracy-curve", "summary"} <= set(shown)
