"""deploy/prefect.yaml on a real server: work pool, worker, runs by schedule and by hand, seen
through the API.
"""

import contextlib
import inspect
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
import yaml
from prefect.client.schemas.actions import WorkPoolCreate

from bigfs.flows.comparison.files import read_comparison
from bigfs.flows.comparison.request import Comparison
from bigfs.flows.job import Job
from tests.helpers.processes import (
    CANARY,
    PREFECT_WARNS,
    ROOT,
    artifacts,
    assert_no_secrets,
    client,
    start,
    stop,
    until,
    write_corpus,
)

pytestmark = PREFECT_WARNS
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
    given = deployment["parameters"]
    checked = flow.validate_parameters(given)
    [number] = {"features", "sizes"} & set(given)
    assert checked[number] == given[number]
    assert deployment["schedules"][0]["cron"]
    assert deployment["schedules"][0]["timezone"]


FLOWS = ("run", "select", "stage", "append", "evaluate", "predict", "prune", "nightly", "compare")


@pytest.mark.parametrize("name", FLOWS)
def test_the_form_has_a_help_text_for_every_parameter(name):
    from bigfs.flows import prefect_flows

    flow = getattr(prefect_flows, name)
    assert flow.name == ("bigfs" if name == "run" else f"bigfs-{name}")
    assert all(field["description"] for field in schema_of(flow).values())


def schema_of(flow):
    return flow.parameters.model_dump()["properties"]


@pytest.mark.parametrize(
    ("name", "model"), [("run", Job), ("select", Job), ("stage", Job), ("compare", Comparison)]
)
def test_the_parameters_of_a_flow_are_fields_of_its_request(name, model):
    from bigfs.flows import prefect_flows

    flow, fields = getattr(prefect_flows, name), model.fields()
    given = inspect.signature(flow.fn).parameters
    assert set(given) <= set(fields)
    assert name in ("select", "stage") or set(given) == set(fields)
    for field, parameter in given.items():
        if parameter.default is not inspect.Parameter.empty:
            assert parameter.default == fields[field].get_default()


def test_the_form_offers_methods_and_their_synonyms():
    from bigfs.flows import prefect_flows

    for flow in (prefect_flows.run, prefect_flows.nightly):
        assert {"anova", "f-classif"} <= set(schema_of(flow)["method"]["enum"])


def test_the_compose_file_opens_ports_on_this_machine_only():
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    assert {"postgres", "prefect", "worker", "dask-scheduler", "dask-worker", "store"} <= set(
        services
    )
    for name, service in services.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        for variable, value in (service.get("environment") or {}).items():
            if "PASSWORD" in variable or "SECRET" in variable or "AUTH" in variable:
                assert value.startswith("${"), f"{name} has the secret {variable} written out"


@pytest.mark.parametrize(
    "file",
    [f for f in FILES if f.parent.name == "kubernetes" and f.name == "dask.yaml"],
    ids=lambda f: f.name,
)
def test_every_manifest_says_what_it_is(file):
    for document in yaml.safe_load_all(file.read_text()):
        assert document["apiVersion"]
        assert document["kind"]
        assert document["metadata"]["namespace"] == "bigfs"


def test_the_image_is_built_from_what_is_tested():
    lines = (ROOT / "deploy" / "Dockerfile").read_text()
    assert "--constraint deploy/constraints.txt" in lines
    extras = set(re.search(r"\.\[([\w,]+)\]", lines)[1].split(","))
    assert extras >= {"s3", "hdf5", "export"}  # buckets, .h5ad and `bigfs export` work there too
    for name in (
        line.split()[1]
        for line in lines.splitlines()
        if line.startswith("COPY") and "--from" not in line
    ):
        assert (ROOT / name).exists() or name == "README.md", name


@pytest.mark.nightly
def test_the_slurm_script_runs_where_srun_just_runs_its_command(prefect_server, tmp_path):
    """One node, no SLURM: `srun` without its own option, and a host name that is this machine's
    own.
    """
    commands = {"srun": 'shift 2; exec "$@"', "hostname": "echo 127.0.0.1"}
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    write_corpus(tmp_path / "corpus.jsonl", seed=3)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = prefect_server.env | {"PATH": path, "SLURM_MEM_PER_CPU": "2500"}
    command = [
        "bash",
        ROOT / "deploy" / "slurm" / "bigfs.sbatch",
        "corpus.jsonl",
        "--features",
        "12",
        "--out",
        "runs/r",
    ]
    ended = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # its tiles were worked on there
    assert "worker 0" in (tmp_path / "runs" / "r" / "run.json").read_text()
    assert not list(tmp_path.glob(".bigfs-slurm-*"))


STAND_INS = {  # programs that do what the script waits for, and nothing else
    "srun": 'shift 2; exec "$@"',
    "hostname": "echo 127.0.0.1",
    "dask": """for last; do :; done
if [ "$1" = scheduler ]; then echo '{"address": "tls://here"}' > "$last"; fi
exec sleep 60""",
    "python3": "echo tls://here",  # when the workers have come
    "bigfs": """if [ "$1" = certificates ]; then mkdir "$2"; echo "export A='a b'"; exit; fi
trap 'echo "the run ends by itself"; exit 143' TERM
echo "bigfs $* on $A"
while :; do sleep 0.1; done""",
}


def start_slurm_script(folder, **changes):
    """The script with stand-ins; a changed one may be None for a program that is not there."""
    for name, lines in (STAND_INS | changes).items():
        if lines is not None:
            (folder / name).write_text(f"#!/bin/bash\n{lines}\n")
            (folder / name).chmod(0o755)
    script = ROOT / "deploy" / "slurm" / "bigfs.sbatch"
    env = {"PATH": os.pathsep.join([str(folder), "/usr/bin", "/bin"])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(["bash", script, "a.svm"], cwd=folder, env=env, **pipes)


def test_the_slurm_script_gives_the_run_the_signal_and_waits_for_its_end(tmp_path):
    with start_slurm_script(tmp_path) as script:
        assert script.stdout.readline().startswith("bigfs run a.svm --scheduler tls://here --tls ")
        script.terminate()
        assert script.stdout.read() == "the run ends by itself\n"
        assert script.wait(timeout=30) == 143
    assert not list(tmp_path.glob(".bigfs-slurm-*"))


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"bigfs": None}, 127, "bigfs is not on PATH: activate its environment"),
        ({"bigfs": "echo no key; exit 3"}, 3, ""),
        ({"dask": "exit 1"}, 1, "the scheduler did not start on 127.0.0.1"),
    ],
)
def test_the_slurm_script_ends_when_a_part_cannot_start(tmp_path, changes, status, message):
    with start_slurm_script(tmp_path, **changes) as script:
        said, _ = script.communicate(timeout=30)
    assert (script.returncode, message in said) == (status, True), said
    assert not list(tmp_path.glob(".bigfs-slurm-*"))


# --- on a server ----------------------------------------------------------------------------------


def test_the_server_refuses_who_has_no_password(prefect_server):
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(
            urllib.request.Request(f"{prefect_server.url}/flows/filter", method="POST"), timeout=30
        )


@pytest.fixture
def deployed(prefect, tmp_path):
    """deploy/prefect.yaml on a process pool with a worker: nightly every few seconds, weekly by
    hand, with a secret.
    """
    from prefect.blocks.system import Secret

    write_corpus(tmp_path / "corpus.jsonl", seed=3)
    Secret(value=CANARY).save("store-key", overwrite=True)
    plan = yaml.safe_load((ROOT / "deploy" / "prefect.yaml").read_text())
    nightly, weekly, _ = plan["deployments"]
    plan["deployments"] = [nightly, weekly]
    for deployment in plan["deployments"]:
        deployment["parameters"] |= {
            "source": str(tmp_path / "corpus.jsonl"),
            "engine": {"workers": 0},
        }
    nightly["schedules"] = [{"interval": 10, "active": True}]
    nightly["parameters"] |= {"features": 12, "overlap": "wait"}
    weekly["parameters"] |= {
        "methods": ["sparge-lpp", "sparge-sda"],
        "sizes": [6, 12],
        "grid": {"sparge-lpp": {"gamma": [0.5, 1.0]}},
    }
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump(plan))
    prefect_cli = [sys.executable, "-m", "prefect"]
    env = prefect.env | {"PREFECT_LOCAL_STORAGE_PATH": str(tmp_path / "results")}

    def call(*words):
        done = subprocess.run(
            [*prefect_cli, *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    call("work-pool", "get-default-base-job-template", "--type", "process", "--file", "pool.json")
    template = json.loads((tmp_path / "pool.json").read_text())
    template["variables"]["properties"]["env"]["default"] = {
        "AWS_SECRET_ACCESS_KEY": "{{ prefect.blocks.secret.store-key }}"
    }
    (tmp_path / "pool.json").write_text(json.dumps(template))
    call("work-pool", "create", "bigfs", "--type", "process", "--base-job-template", "pool.json")
    call("--no-prompt", "deploy", "--all")
    worker = start(
        [*prefect_cli, "worker", "start", "--pool", "bigfs", "--limit", "2"],
        tmp_path / "worker.log",
        env,
        tmp_path,
    )
    try:
        yield worker
    finally:
        with client() as api:
            api.pause_deployment(api.read_deployment_by_name("bigfs/nightly").id)
        stop(worker)


@pytest.mark.nightly
def test_deployments_run_by_schedule_and_by_hand_with_their_secret_and_keep_it(deployed, tmp_path):
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId

    with client() as api:
        nightly, weekly = (
            api.read_deployment_by_name(name) for name in ("bigfs/nightly", "bigfs-compare/weekly")
        )
        asked = [
            api.create_flow_run_from_deployment(
                nightly.id, parameters={"features": 6, "out": "runs/by-hand"}
            ).id,
            api.create_flow_run_from_deployment(weekly.id).id,
        ]
    mine = DeploymentFilter(id=DeploymentFilterId(any_=[nightly.id, weekly.id]))
    given = set()

    def completed():
        given.update(secrets_of(deployed))
        with client() as api:
            ended = [
                run for run in api.read_flow_runs(deployment_filter=mine) if run.state.is_final()
            ]
        assert all(run.state.is_completed() for run in ended), [
            (run.state.name, run.state.message) for run in ended
        ]
        scheduled = [run for run in ended if run.auto_scheduled]
        return (
            scheduled if len(scheduled) >= 2 and {run.id for run in ended} >= set(asked) else None
        )

    scheduled = until(completed, "two runs by schedule and two by hand", 240, every=0.3)
    assert {"bigfs", "nightly"} <= set(scheduled[0].tags)
    assert (tmp_path / "runs" / "nightly" / "report.html").exists()
    assert len((tmp_path / "runs" / "by-hand" / "selected.csv").read_text().splitlines()) == 7
    first = min(scheduled, key=lambda run: run.start_time)
    assert {"selected", "accuracy", "accuracy-curve", "summary"} <= set(artifacts(first.state))
    assert CANARY in given
    with client() as api:
        told = [
            api._client.post(f"/{kept}/filter", json={}).text
            for kept in ("logs", "deployments", "work_pools", "flow_runs")
        ]
    assert "prefect.blocks.secret.store-key" in told[2]
    assert_no_secrets(tmp_path, "".join(told))
    weekly_result = read_comparison(tmp_path / "runs" / "weekly")
    assert [len(row["points"]) for row in weekly_result["rows"]] == [2, 2, 2]
    assert len(list((tmp_path / ".bigfs").glob("*.graphs/[!.]*"))) == 1


def secrets_of(worker):
    """What the flow runs of a worker have in their environment."""
    for child in psutil.Process(worker.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            yield child.environ().get("AWS_SECRET_ACCESS_KEY")


def test_the_page_deploys_a_flow_in_python(prefect):
    page = (ROOT / "docs" / "guide" / "scheduled.md").read_text()
    [block] = [b for b in re.findall(r"```python\n(.*?)```", page, flags=re.S) if "deploy(" in b]
    with client() as api:
        api.create_work_pool(WorkPoolCreate(name="bigfs", type="process"), overwrite=True)
        exec(block, {})
        made = api.read_deployment_by_name("bigfs-nightly/from-python")
        assert made.entrypoint == "bigfs.flows.prefect_flows.nightly"
        assert made.parameters["keep"] == "30d"
        api.delete_deployment(made.id)
        api.delete_work_pool("bigfs")


# --- bigfs serve ----------------------------------------------------------------------------------


def test_serve_runs_by_its_schedule_on_the_server_of_the_settings(prefect_server, tmp_path):
    home = tmp_path / "served"
    home.mkdir()
    write_corpus(home / "corpus.jsonl", seed=3)
    env = prefect_server.env | {"PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    command = [sys.executable, "-m", "bigfs", "serve", "corpus.jsonl", "--cron", "* * * * * */5"]
    command += ["--timezone", "Asia/Kolkata", "--features", "12", "--set", "gamma=0.5"]
    command += ["--workers", "0", "--out", "runs/r"]
    served = start(command, tmp_path / "serve.log", env, home)
    try:
        report = home / "runs" / "r" / "report.html"
        until(lambda: report.exists() or served.poll() is not None, "a run by schedule", 200)
        told = (tmp_path / "serve.log").read_text()
        assert served.poll() is None, told
        about = json.loads((home / "runs" / "r" / "run.json").read_text())
        assert about["parameters"]["parameters"] == {"gamma": 0.5}
        assert "schedule: * * * * * */5 in the time zone Asia/Kolkata" in told
        tree = psutil.Process(served.pid).children(recursive=True)
        served.terminate()
        assert served.wait(60) == 143
        assert (tmp_path / "serve.log").read_text().splitlines()[-1] == "bigfs: terminated"
        assert not psutil.wait_procs(tree, timeout=20)[1]
    finally:
        stop(served)
