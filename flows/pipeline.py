"""The main job as a Prefect flow: stage → graph → select → evaluate → report, one task a stage.

Tasks pass URIs and paths. One Dask cluster serves them all: the flow opens it (or connects to
`scheduler`) and each stage submits its own graph, so nothing waits inside a busy worker.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import psutil
from prefect import flow, task
from pydantic import Field

from bigfs import blocks
from flows import stages
from storage.runs import Run


@task(name="stage")
def stage(source: str, store: str | None, settings: dict[str, Any]) -> dict[str, Any]:
    return stages.stage(source, store, settings)


@task(name="select")
def select(store: str, out: str, method: str, features: int, parameters: dict[str, Any], before: list[dict[str, Any]]) -> str:
    return str(stages.select(store, out, method=method, features=features, parameters=parameters, before=before).path)


@task(name="evaluate")
def evaluate(run: str) -> None:
    stages.evaluate(Run.open(run))


@task(name="report")
def report(run: str) -> str:
    return str(stages.finish(run))


@flow(name="bigfs", flow_run_name="{method}, {features} of {source}")
def pipeline(
    source: Annotated[str, Field(description="A path, a URL, or a name of the catalogue")],
    method: Annotated[str, Field(description="One of `bigfs methods`")] = "sparge-lda",
    features: Annotated[int, Field(description="How many features to keep", ge=1)] = 500,
    store: Annotated[str | None, Field(description="Where the staged corpus lies; default: by the source's name")] = None,
    out: Annotated[str | None, Field(description="The run's directory; default: runs/NAME")] = None,
    settings: Annotated[dict[str, Any] | None, Field(description="Of staging: min_df, hashing, tile_rows, …")] = None,
    parameters: Annotated[dict[str, Any] | None, Field(description="Of the method, by scikit-learn's names")] = None,
    scheduler: Annotated[str | None, Field(description="Address of a Dask scheduler; default: processes on this machine")] = None,
    tls: Annotated[str | None, Field(description="Folder of certificates for a tls:// scheduler")] = None,
    workers: Annotated[int | None, Field(description="Processes to start here; 0 works serially", ge=0)] = None,
    memory_limit: Annotated[str, Field(description="Of each process started here")] = "1GB",
) -> str:
    """Select features of a corpus and report on them. Returns the run's directory."""
    with blocks.cluster(scheduler, workers=workers, memory_limit=memory_limit, security=tls):
        age = time.time() - psutil.Process().create_time()
        start_up = {"stage": "start-up (Python, Prefect, Dask)", "seconds": age, "peak_memory": stages.processes()}
        staged = stage(source, store, settings or {})
        where = out or stages.default_out(source, method, features)
        run = select(staged["store"], where, method, features, parameters or {}, [start_up, staged])
        evaluate(run)
        return report(run)
