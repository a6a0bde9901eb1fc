"""A web page of a foreign origin, in a real browser, against `bigfs serve` and a local Dask cluster.

    python benchmarks/closed_doors.py [CHROMIUM]

Starts all of it on 127.0.0.1 and prints what the page got from each address, beside an open server as the control. Exit
status 1 if the page got in anywhere else, if it started a run, or if it did not get into the control.
"""

import base64
import contextlib
import http.server
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import ClassVar

import psutil

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]
from bigfs import engine  # noqa: E402  # from this folder, not from an installed one
from tests.helpers.processes import (  # noqa: E402  # the same
    environment,
    free_port,
    start,
    stop,
    until,
    write_corpus,
)

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
FLAGS += ["--disable-component-update", "--disable-sync"]
PAGE = """<!doctype html><iframe name="sink"></iframe><script>
const told = {};
const limited = (promise) => Promise.race([promise, new Promise((_, fail) => setTimeout(() => fail("no answer"), 5000))]);
async function attempt(name, make) { try { told[name] = await with_memory_limit(make()); } catch (error) { told[name] = "refused: " + error; } }
const read = async (answer) => answer.type + " " + answer.status + " " + (await answer.text()).slice(0, 40);
const socket = (url) => new Promise((done, fail) => {
  const opened = new WebSocket(url, ["prefect"]);
  opened.onopen = () => done("opened"); opened.onerror = () => fail("closed"); });
(async () => {
  for (const url of URLS) {
    const post = { method: "POST", body: "{}", headers: { "Content-Type": "application/json" } };
    await attempt("fetch GET " + url, async () => read(await fetch(url)));
    await attempt("fetch POST " + url, async () => read(await fetch(url, post)));
    await attempt("blind POST " + url, async () => read(await fetch(url, { method: "POST", mode: "no-cors", body: "{}" })));
    await attempt("WebSocket " + url, () => socket(url.replace("http", "ws")));
    const form = document.createElement("form");
    form.method = "POST"; form.action = url; form.target = "sink"; form.enctype = "text/plain";
    document.body.append(form); form.submit();
    await new Promise((go) => setTimeout(go, 300));
  }
  await fetch("/told", { method: "POST", body: JSON.stringify(told) });
})();
</script>"""


class Foreign(http.server.BaseHTTPRequestHandler):
    """The foreign site: its page, and where the page reports."""

    urls: ClassVar[list[str]] = []
    reports: ClassVar[dict[str, str]] = {}

    def do_GET(self):
        """Answer with the page."""
        body = PAGE.replace("URLS", json.dumps(self.urls)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        """Take the page's report."""
        type(self).reports.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        """Print nothing."""


class Open(http.server.BaseHTTPRequestHandler):
    """The control: a server that lets every page in, as Prefect's does by itself."""

    def do_GET(self):
        """Answer any page."""
        self.send_response(200)
        for name in ("Origin", "Headers"):
            self.send_header(f"Access-Control-Allow-{name}", "*")
        self.end_headers()

    do_POST = do_OPTIONS = do_GET

    def log_message(self, *_):
        """Print nothing."""


def runs(api, secret):
    """Ids of the flow runs that the server knows, and of its deployments, as its user sees them."""
    ids = []
    for kind in ("flow_runs", "deployments"):
        token = base64.b64encode(secret.encode()).decode()
        headers = {"Content-Type": "application/json", "Authorization": f"Basic {token}"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{api}/{kind}/filter", b"{}", headers), timeout=120
        ) as answer:
            ids.append([record["id"] for record in json.loads(answer.read())])
    return ids


def listening():
    """Ports of this process and its children."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    ports = set()
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            ports |= {
                c.laddr.port
                for c in process.net_connections("inet")
                if c.status == psutil.CONN_LISTEN
            }
    return ports


def visit(chromium, home, page):
    """Open the page until it has reported."""
    command = [
        chromium,
        *FLAGS,
        f"--user-data-dir={home / 'browser'}",
        "--remote-debugging-port=0",
        page,
    ]
    browser = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until(lambda: Foreign.reports, "the page's report", 240, every=0.5)
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
        time.sleep(1)  # its children still write to the folder


def main():
    """Print the table."""
    chromium = sys.argv[1] if len(sys.argv) > 1 else "/usr/bin/chromium"
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        engine.cluster(workers=1),
    ):
        home = Path(folder)
        write_corpus(home / "corpus.svm", seed=3)
        port = free_port()
        env = environment(
            home / "prefect",
            XDG_DATA_HOME=str(home / "data"),
            PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED="false",
        )
        command = [
            sys.executable,
            "-m",
            "flows",
            "serve",
            "corpus.svm",
            "--workers",
            "0",
            "--port",
            port,
        ]
        dask = sorted(listening())
        served = start(command, home / "log", env, home)
        site, control = (
            http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers)
            for answers in (Foreign, Open)
        )
        try:
            until(lambda: "runs: " in (home / "log").read_text(), "the server's start", 240)
            api = f"http://127.0.0.1:{port}/api"
            secret = (home / "data" / "bigfs" / "prefect-secret").read_text()
            until(lambda: runs(api, secret)[1], "the deployment", 240)
            before, (deployment,) = runs(api, secret)
            start_run = f"{api}/deployments/{deployment}/create_flow_run"
            Foreign.urls = [
                f"http://127.0.0.1:{control.server_port}/",
                start_run,
                start_run.replace("127.0.0.1", "localhost"),
            ]
            Foreign.urls += [f"{api}/events/in", *(f"http://127.0.0.1:{p}/" for p in dask)]
            for server in (site, control):
                threading.Thread(target=server.serve_forever, daemon=True).start()
            visit(chromium, home, f"http://localhost:{site.server_port}/")
            started = len(runs(api, secret)[0]) - len(before)
        finally:
            stop(served)
    width = max(map(len, Foreign.reports))
    for name, answer in Foreign.reports.items():
        print(f"{name:{width}}  {answer}")
    # an opaque answer tells the page nothing: whether the request did anything is seen in the server's runs
    let_in = {
        name
        for name, answer in Foreign.reports.items()
        if not answer.startswith(("refused", "opaque"))
    }
    of_control = {name for name in let_in if f":{control.server_port}/" in name}
    print(
        f"control: {len(of_control)} let in; others: {len(let_in - of_control)} let in, {started} runs started"
    )
    sys.exit(not of_control or bool(let_in - of_control) or started > 0)


if __name__ == "__main__":
    main()
