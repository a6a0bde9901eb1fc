"""Pictures for docs/guide/scheduled.md: a run on Prefect's pages, its artifacts, and the Dask
dashboard while it works.

    PYTHONPATH=.:tests python benchmarks/flow_pictures.py docs/pictures

A real server, scheduler and workers on 127.0.0.1; the pages as headless Chromium draws them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import connect

from tests.helpers.processes import artifacts, client, dask_cluster, prefect_process, until

SOURCE = "synthetic:newswire?rows=8000"


class Page:
    """A tab of Chromium, driven by its DevTools protocol."""

    def __init__(self, socket: Any) -> None:
        self.socket, self.asked = socket, 0

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.asked += 1
        self.socket.send(json.dumps({"id": self.asked, "method": method, "params": parameters}))
        while True:
            told = json.loads(self.socket.recv(timeout=60))
            if told.get("id") == self.asked:
                return told["result"]

    def open(self, address: str, ready: str) -> None:
        """Go to a page and wait until `ready`, an expression of JavaScript, is true."""
        self.ask("Page.navigate", url=address)
        until(
            lambda: self.ask("Runtime.evaluate", expression=ready)["result"].get("value"),
            f"{ready} on {address}",
            120,
            every=0.5,
        )

    def save(self, file: Path) -> None:
        """The page as a person sees it once it has come to rest."""
        self.ask(
            "Runtime.evaluate",
            expression="new Promise(done => setTimeout(done, 5000))",
            awaitPromise=True,
        )
        file.write_bytes(self.screenshot())

    def screenshot(self) -> bytes:
        """The page as a PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])


@contextlib.contextmanager
def chromium(home: Path, width: int = 1200, height: int = 1000) -> Iterator[Page]:
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--remote-debugging-port=0",
    ]
    command += [
        f"--user-data-dir={home / 'chromium'}",
        f"--window-size={width},{height}",
        "about:blank",
    ]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as browser:
        try:
            told = home / "chromium" / "DevToolsActivePort"
            port = until(
                lambda: told.exists() and told.read_text().split("\n")[0], "Chromium's start", 60
            )
            tabs = httpx.get(f"http://127.0.0.1:{port}/json").json()
            tab = next(tab for tab in tabs if tab["type"] == "page")
            with connect(tab["webSocketDebuggerUrl"], max_size=None) as socket:
                yield Page(socket)
        finally:
            browser.terminate()


def main() -> None:
    folder, home = Path(sys.argv[1]).absolute(), Path(tempfile.mkdtemp(prefix="bigfs-pictures-"))
    with (
        prefect_process(home, auth=None) as server,
        dask_cluster(home) as cluster,
        chromium(home) as page,
    ):
        os.environ |= {k: v for k, v in server.env.items() if k.startswith(("PREFECT_", "DASK_"))}
        os.chdir(home)
        from bigfs import engine as tile_engine
        from flows.options import Engine
        from flows.prefect_flows import bigfs

        states: list[Any] = []
        engine = Engine(scheduler=cluster.address, tls=str(cluster.tls))
        job = threading.Thread(
            target=lambda: states.append(
                bigfs(SOURCE, "sparge-lpp", 200, engine=engine, return_state=True)
            )
        )
        job.start()
        with tile_engine.cluster(cluster.address, security=cluster.tls) as dask:
            until(dask.processing, "work on the cluster")
            page.open(dask.dashboard_link, "document.querySelectorAll('.bk-Figure').length > 3")
            until(
                lambda: any(home.glob("runs/.*.run-partial/checkpoints")),
                "the method's first step",
                300,
            )
            page.save(folder / "dask-dashboard.png")
        job.join()
        run_id = str(states[0].state_details.flow_run_id)
        ui = server.url.removesuffix("/api")
        page.open(f"{ui}/runs/flow-run/{run_id}", "document.body.innerText.includes('Completed')")
        page.save(folder / "prefect-run.png")
        with client():
            shown = artifacts(states[0])
        for key, text in (("selected", "rank"), ("accuracy-curve", "Accuracy")):
            page.open(
                f"{ui}/artifacts/artifact/{shown[key]['id']}",
                f"document.body.innerText.includes('{text}')",
            )
            page.save(folder / f"prefect-{key}.png")


if __name__ == "__main__":
    main()
