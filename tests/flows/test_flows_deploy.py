"""deploy/prefect.yaml on a real server: work pool, worker, runs by schedule and by hand, seen
through the API.
"""

import base64
import contextlib
import json
import os
import re
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
import yaml
from bigfs.flows.comparison.standings import read_comparison
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.helpers.processes import (
    CANARY,
    PREFECT_WARNS,
    ROOT,
    artifacts,
    assert_no_secrets,
    client,
    environment,
    free_port,
    give_database,
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


def test_the_form_has_a_help_text_for_every_parameter():
    from bigfs.flows import prefect_flows

    for flow in (prefect_flows.bigfs, prefect_flows.compare, prefect_flows.select):
        fields = flow.parameters.model_dump()["properties"]
        assert all(field["description"] for field in fields.values())
    assert "anova" in prefect_flows.bigfs.parameters.model_dump()["properties"]["method"]["enum"]


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
    nightly, weekly = plan["deployments"]
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
            api.read_deployment_by_name(name) for name in ("bigfs/nightly", "compare/weekly")
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


# --- without any of that --------------------------------------------------------------------------


def call(url, body=None, secret=None, **headers):
    """Status, headers and content of a request."""
    if secret:
        headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(
        url,
        data,
        {"Content-Type": "application/json", **headers},
        method=headers.pop("method", None),
    )
    try:
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, dict(answer.headers), answer.read()


def refused_everywhere(url, secret):
    """No request without the secret gets an answer of the API, whatever page or name it is from,
    and no other page may read an answer.
    """
    foreign, own = {"Origin": "https://evil.example"}, url.removesuffix("/api")
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    filters = f"{url}/deployments/filter"
    for given in ({}, foreign, {"Host": "evil.example"}, {"Origin": own}):
        assert call(filters, {}, **given)[0] == 401
        assert call(filters, {}, "bigfs:guess", **given)[0] == 401
    assert call(filters, method="OPTIONS", **foreign, **asked)[0] == 400  # so no page can ask
    for answer in (call(filters, {}, secret, **foreign), call(f"{own}/", **foreign)):
        allowed = {name.lower(): value for name, value in answer[1].items()}
        assert allowed.get("access-control-allow-origin") in (None, own)
    assert call(filters, {}, secret)[0] == 200
    assert call(filters, {}, secret, Origin=own)[0] == 200
    for path in ("events/in", "events/out", "logs/out", "task_runs/subscriptions/scheduled"):
        with connect(
            f"{url.replace('http', 'ws')}/{path}", subprotocols=["prefect"], open_timeout=60
        ) as socket:
            socket.send(json.dumps({"type": "auth", "token": None}))
            with pytest.raises(ConnectionClosed):
                socket.recv(timeout=60)


def asked_for(url, secret, **parameters):
    """The final state of a run that the API is asked for; the schedule pauses, since on a busy
    machine its runs would go first for ever.
    """
    deployment = json.loads(call(f"{url}/deployments/filter", {}, secret)[2])[0]["id"]
    assert call(f"{url}/deployments/{deployment}/pause_deployment", {}, secret)[0] == 200
    asked = f"{url}/deployments/{deployment}/create_flow_run"
    status, _, answer = call(asked, {"parameters": parameters}, secret)
    assert status == 201, answer
    run = json.loads(answer)["id"]

    def final():
        state = json.loads(call(f"{url}/flow_runs/{run}", None, secret)[2])["state"]
        return state if state["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None

    return until(final, "the run asked for", 200, every=0.3)


def flow_runs_of(served):
    """The processes of flow runs that a serving process has started."""
    found = []
    for child in psutil.Process(served.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            found += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    return found


@pytest.mark.process
def test_serve_runs_by_its_schedule_behind_its_secret_and_takes_its_server_with_it(tmp_path):
    home = tmp_path / "served"
    home.mkdir()
    write_corpus(home / "corpus.jsonl", seed=3)
    give_database(tmp_path / "prefect")
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    env = environment(
        tmp_path / "prefect",
        PREFECT_RUNNER_POLL_FREQUENCY="1",
        PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS="2",
    )
    env |= {"XDG_DATA_HOME": str(tmp_path / "data"), "PREFECT_LOGGING_LEVEL": "DEBUG"}
    command = [
        sys.executable,
        "-m",
        "bigfs",
        "serve",
        "corpus.jsonl",
        "--cron",
        "* * * * * */5",
        "--timezone",
        "Asia/Kolkata",
        "--features",
        "12",
    ]
    command += ["--set", "gamma=0.5", "--workers", "0", "--out", "runs/r", "--port", port]
    served = start(command, tmp_path / "serve.log", env, home)
    try:
        report = home / "runs" / "r" / "report.html"
        until(lambda: report.exists() or served.poll() is not None, "a run by schedule", 200)
        assert served.poll() is None, (tmp_path / "serve.log").read_text()
        assert json.loads((home / "runs" / "r" / "run.json").read_text())["parameters"][
            "parameters"
        ] == {"gamma": 0.5}
        file = tmp_path / "data" / "bigfs" / "prefect-secret"
        secret = file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert str(file) in (tmp_path / "serve.log").read_text()
        told = (tmp_path / "serve.log").read_text()
        assert "schedule: * * * * * */5 in the time zone Asia/Kolkata" in told
        log = tmp_path / "prefect" / "bigfs-server.log"
        assert str(log) in told
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        deployment = json.loads(call(f"{url}/deployments/filter", {}, secret)[2])[0]
        assert deployment["schedules"][0]["schedule"]["timezone"] == "Asia/Kolkata"
        refused_everywhere(url, secret)
        state = asked_for(url, secret, out=str(tmp_path / "elsewhere"))
        assert state["type"] == "COMPLETED"
        assert (tmp_path / "elsewhere" / "report.html").exists()
        until(lambda: not flow_runs_of(served), "the end of the run's process")
        tree = psutil.Process(served.pid).children(recursive=True)
        for process in (psutil.Process(served.pid), *tree):
            with contextlib.suppress(psutil.NoSuchProcess):
                assert secret.partition(":")[2] not in " ".join(process.cmdline())
        told = "".join(
            call(f"{url}/{kept}/filter", {}, secret)[2].decode()
            for kept in ("logs", "deployments", "flow_runs", "artifacts")
        )
        assert secret.partition(":")[2] not in told + (tmp_path / "serve.log").read_text()
        for kept in (*home.rglob("*"), *(tmp_path / "prefect").rglob("*")):
            assert (
                not kept.is_file() or secret.partition(":")[2].encode() not in kept.read_bytes()
            ), kept
        served.terminate()
        assert served.wait(60) == 143
        assert (tmp_path / "serve.log").read_text().splitlines()[-1] == "bigfs: terminated"
        assert not psutil.wait_procs(tree, timeout=20)[1]
    finally:
        stop(served)


@pytest.mark.process
@pytest.mark.nightly
def test_a_killed_serve_takes_its_run_with_it_and_the_next_one_calls_it_crashed(tmp_path):
    home, port = tmp_path / "served", free_port()
    home.mkdir()
    write_corpus(home / "corpus.jsonl", seed=3, rows=9000)
    give_database(tmp_path / "prefect")
    env = environment(
        tmp_path / "prefect",
        PREFECT_RUNNER_POLL_FREQUENCY="1",
        PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS="2",
    )
    env["XDG_DATA_HOME"] = str(tmp_path / "data")
    command = [sys.executable, "-m", "bigfs", "serve", "corpus.jsonl", "--port", port]
    command += ["--features", "12", "--workers", "0", "--tile-rows", "500", "--out", "r"]
    command += ["--method", "sparge-lpp", "--set", "tol=1e-9"]
    log, often, rarely = tmp_path / "log", ("--cron", "* * * * * */5"), ("--cron", "0 3 1 1 *")
    served = start([*command, *often], log, env, home)
    try:
        until(
            lambda: any(home.glob(".bigfs/.*.staging")) or served.poll() is not None,
            "a run at work",
            200,
        )
        assert served.poll() is None, log.read_text()
        processes = psutil.Process(served.pid).children(recursive=True)
        assert flow_runs_of(served)
        served.kill()
        assert not psutil.wait_procs(processes, timeout=40)[1]
    finally:
        stop(served)
    again = start([*command, *rarely], log, env, home)
    try:
        secret = (tmp_path / "data" / "bigfs" / "prefect-secret").read_text()

        def states():
            answer = call(f"http://127.0.0.1:{port}/api/flow_runs/filter", {}, secret)
            return {run["state"]["type"] for run in json.loads(answer[2])}

        until(lambda: "schedule: 0 3 1 1 *" in log.read_text(), "the next start", 120)
        assert "CRASHED" in states()
        assert "RUNNING" not in states()
    finally:
        stop(again)
