"""deploy/prefect.yaml with Prefect's database in PostgreSQL: nights whose choice changes, a night
that fails, a database that goes away for a moment, and a machine whose power fails.
"""

import contextlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import yaml

from bigfs.storage.runs.runs import Run, results_of
from tests.helpers.processes import (
    AUTH,
    PREFECT_WARNS,
    ROOT,
    client,
    free_port,
    kill,
    prefect_process,
    start,
    stop,
    until,
    write_corpus,
)

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
REASON = "PostgreSQL's initdb and setpriv are needed, and root: install postgresql and util-linux"
HAS_ALL = PROGRAMS and shutil.which("setpriv") and os.geteuid() == 0
pytestmark = [
    pytest.mark.process,
    pytest.mark.nightly,
    pytest.mark.skipif(not HAS_ALL, reason=REASON),
    PREFECT_WARNS,
]
PREFECT = [sys.executable, "-m", "prefect"]
LONG = "synthetic:phrases?rows=60000"


class Postgres:
    """A server of PostgreSQL on 127.0.0.1, which dies with this process."""

    def __init__(self, folder):
        self.folder, self.port, self.programs = folder, free_port(), PROGRAMS[-1].parent
        user = ["--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig=KILL"]
        self.user = ["setpriv", *user]
        shutil.chown(folder, "postgres")
        initdb = [self.programs / "initdb", "-D", folder / "data", "-U", "prefect", "-A", "trust"]
        subprocess.run([*self.user, *initdb], check=True, capture_output=True, cwd=folder)
        self.url = f"postgresql+asyncpg://prefect@127.0.0.1:{self.port}/prefect"
        self.start()
        self._call("createdb", "prefect")

    def _call(self, program, *words):
        at = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "prefect"]
        command = [self.programs / program, *at, *words]
        return subprocess.run(command, check=program != "pg_isready", capture_output=True)

    def start(self):
        here = ["-D", self.folder / "data", "-p", self.port, "-k", self.folder, "-h", "127.0.0.1"]
        command = [*self.user, self.programs / "postgres", *here]
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "data" / "postmaster.pid").unlink()
        self.process = start(command, self.folder / "log", dict(os.environ), self.folder)
        until(lambda: self._call("pg_isready").returncode == 0, "PostgreSQL's start")

    def stop(self):
        """End it as a crash does: without a checkpoint."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(30)


@pytest.fixture
def postgres():
    folder = Path(tempfile.mkdtemp(prefix="bigfs-postgres-"))  # its user can enter no other
    try:
        running = Postgres(folder)
        yield running
        running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def told():
    """The texts that were posted to a web server, and its address."""

    class Texts(list):
        """With an address."""

    texts = Texts()

    class Chat(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            texts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Chat) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        texts.address = f"http://127.0.0.1:{server.server_port}/"
        yield texts
        server.shutdown()


class Nights:
    """The deployment `nightly` on a worker of its own."""

    def __init__(self, server, home):
        self.home, self.url = home, server.url
        self.env = server.env | {"PREFECT_CLIENT_RETRY_EXTRA_CODES": "500"}

    def call(self, *command):
        done = subprocess.run(
            command, cwd=self.home, env=self.env, capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def deploy(self):
        plan = yaml.safe_load((ROOT / "deploy" / "prefect.yaml").read_text())
        nightly = plan["deployments"][0]
        nightly["schedules"] = []
        nightly["parameters"] |= {
            "source": "corpus.jsonl",
            "features": 20,
            "method": "anova",
            "engine": {"workers": 0},
        }
        (self.home / "prefect.yaml").write_text(yaml.safe_dump(plan | {"deployments": [nightly]}))
        self.call(*PREFECT, "work-pool", "create", "bigfs", "--type", "process")
        self.call(*PREFECT, "--no-prompt", "deploy", "--all")

    @contextlib.contextmanager
    def asking(self):
        from prefect import settings
        from prefect.settings import temporary_settings

        mine = {settings.PREFECT_API_URL: self.url, settings.PREFECT_API_AUTH_STRING: AUTH}
        with temporary_settings(mine), client() as api:
            yield api

    def begin(self, **parameters):
        with self.asking() as api:
            nightly = api.read_deployment_by_name("bigfs/nightly")
            return api.create_flow_run_from_deployment(nightly.id, parameters=parameters).id

    def state(self, run):
        with self.asking() as api:
            return api.read_flow_run(run).state

    def end(self, run, seconds=200):
        return until(lambda: self.ended(run), "the end of the night", seconds, every=1)

    def ended(self, run):
        state = self.state(run)
        return state.name if state.is_final() else None


def worker_of(nights):
    command = [*PREFECT, "worker", "start", "--pool", "bigfs", "--limit", "1"]
    return start(command, nights.home / "worker.log", nights.env, nights.home)


def works_on(nights, out):
    return any((nights.home / ".bigfs").glob(".phrases-*.staging")) or (nights.home / out).exists()


def test_nights(postgres, told, tmp_path):
    home = tmp_path / "home"
    database = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": postgres.url}
    with prefect_process(home, **database) as server:
        nights = Nights(server, tmp_path)
        nights.deploy()
        guide = (ROOT / "docs" / "guide" / "scheduled.md").read_text()
        [code] = [block for block in guide.split("```python\n")[1:] if "Automation(" in block]
        code = code.partition("```")[0].replace("https://chat.example.org/hook", told.address)
        nights.call(sys.executable, "-c", code)
        worker = worker_of(nights)
        try:
            for seed in (3, 4):
                write_corpus(tmp_path / "corpus.jsonl", seed)
                assert nights.end(nights.begin()) == "Completed"
            changed = until(lambda: told and told[0], "the message of the change")
            chosen = [
                {row["name"] for row in Run.open(run).read_table("selected.csv")}
                for run in results_of(tmp_path / "runs/nightly")
            ]
            assert chosen[0] != chosen[1]
            assert changed.startswith("corpus.jsonl: added: ")
            added = changed.split("added: ")[1].split(";")[0].split(", ")
            assert set(added) == chosen[1] - chosen[0]

            assert nights.end(nights.begin(source="nowhere", out="runs/failed")) == "Failed"
            until(lambda: any("nowhere" in text for text in told[1:]), "the message of the failure")

            outage = nights.begin(source=LONG, out="runs/outage")
            until(lambda: works_on(nights, "runs/outage"), "the night's work", 120)
            postgres.stop()
            time.sleep(5)  # the length of the outage
            postgres.start()
            assert nights.end(outage) == "Completed"

            last = nights.begin(source=LONG, out="runs/last", fresh=True, features=300)
            until(lambda: any(tmp_path.glob("runs/.last*")), "the night's work", 120)
        finally:
            kill(worker)
        postgres.stop()
        kill(server.process)
    postgres.start()
    with prefect_process(home, **database) as server:
        nights = Nights(server, tmp_path)
        worker = worker_of(nights)
        try:
            assert nights.state(last).name == "Running"  # for ever, and that blocks nothing
            write_corpus(tmp_path / "corpus.jsonl", 5)
            assert nights.end(nights.begin()) == "Completed"
            assert len(results_of(tmp_path / "runs/nightly")) == 3
        finally:
            stop(worker)
