"""Many runs in a row on one Prefect server and one Dask cluster: what grows, and how long a run takes.

    PYTHONPATH=.:tests python benchmarks/flow_runs.py --runs 50 [--screenshots docs]

Each run does all its work again (`fresh`) on one store. Prints, for the driver, the server, the
scheduler and the workers, resident memory, open files and connections after the first tenth of
the runs and after the last. `--screenshots` takes pictures of the last run's pages in Chromium.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
from processes import dask_cluster, prefect_process

SOURCE = "synthetic:newswire?rows=2000"


def held(process: psutil.Process, tree: bool) -> tuple[float, int, int]:
    """MB resident, open files, connections."""
    each = [process, *(process.children(recursive=True) if tree else [])]
    return sum(p.memory_info().rss for p in each) / 1e6, sum(p.num_fds() for p in each), sum(len(p.net_connections()) for p in each)


def measure(server, cluster) -> dict[str, tuple[float, int, int]]:
    found = {"driver": held(psutil.Process(), False), "Prefect server": held(psutil.Process(server.process.pid), True)}
    found["scheduler"] = held(psutil.Process(cluster.scheduler.pid), True)
    return found | {f"worker {i}": held(psutil.Process(w.pid), True) for i, w in enumerate(cluster.workers)}


def picture(address: str, file: Path, size: str = "1400,1000") -> None:
    """A page as a person sees it once its scripts have run."""
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}",
         "--virtual-time-budget=20000", "--timeout=60000", f"--screenshot={file}", address],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--runs", type=int, default=50)
    ask.add_argument("--screenshots", type=Path)
    given = ask.parse_args()
    home = Path(tempfile.mkdtemp(prefix="bigfs-flows-"))
    folder = given.screenshots.absolute() if given.screenshots else None
    with prefect_process(home, auth=None) as server, dask_cluster(home) as cluster:
        os.environ |= {k: v for k, v in server.env.items() if k.startswith(("PREFECT_", "DASK_"))} | {"PREFECT_LOGGING_LEVEL": "WARNING"}
        os.chdir(home)
        run(given.runs, folder, server, cluster)


def run(runs: int, folder: Path | None, server, cluster) -> None:
    from flows.options import Engine
    from flows.pipeline import pipeline

    engine, seconds, early = Engine(scheduler=cluster.address, tls=str(cluster.tls)), [], {}
    for i in range(1, runs + 1):
        began = time.perf_counter()
        state = pipeline(SOURCE, features=50, out="runs/r", engine=engine, fresh=True, return_state=True)
        seconds.append(time.perf_counter() - began)
        assert state.is_completed(), state.message
        if i == max(1, runs // 10):
            early = measure(server, cluster)
    late = measure(server, cluster)
    print(f"{runs} runs, {sorted(seconds)[runs // 2]:.1f} s each (median), first {seconds[0]:.1f} s, last {seconds[-1]:.1f} s\n")
    print(f"{'after':16}{max(1, runs // 10):>7} runs{'':14}{runs:>7} runs")
    print(f"{'':16}{'MB':>7}{'files':>7}{'conn.':>7}    {'MB':>7}{'files':>7}{'conn.':>7}")
    for name, (mb, files, connections) in early.items():
        last = late[name]
        print(f"{name:16}{mb:7.0f}{files:7}{connections:7}    {last[0]:7.0f}{last[1]:7}{last[2]:7}")
    if folder:
        pictures(folder, state, server, cluster)


def pictures(folder: Path, state, server, cluster) -> None:
    import httpx

    from bigfs import blocks

    ui = server.url.removesuffix("/api")
    run_id = str(state.state_details.flow_run_id)
    picture(f"{ui}/runs/flow-run/{run_id}", folder / "run-page.png")
    picture(f"{ui}/runs/flow-run/{run_id}?tab=Artifacts", folder / "run-artifacts.png")
    asked = {"flow_runs": {"id": {"any_": [run_id]}}}
    for artifact in httpx.post(f"{server.url}/artifacts/filter", json=asked, timeout=60).json():
        if artifact["key"] in ("selected", "accuracy-curve", "summary"):
            picture(f"{ui}/artifacts/artifact/{artifact['id']}", folder / f"artifact-{artifact['key']}.png")
    with blocks.cluster(cluster.address, security=cluster.tls) as client:
        picture(client.dashboard_link, folder / "dask-dashboard.png")


if __name__ == "__main__":
    main()
