"""The steps of a run as plain functions: stage → graph → select → evaluate → report.

Each returns at once where its result is on disk. `flows.run` calls them one after another, in this
process or as Prefect tasks. They take a job whose directory and store are known.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import storage
from flows import reuse, stages
from flows.job import Job, Request
from flows.locks import exclusive
from storage.runs.runs import Run, RunError

log = logging.getLogger("bigfs.flows")


def stage(request: Request) -> dict[str, Any]:
    """Stage the source, unless its store exists. Returns the record of the stage.

    The store is locked meanwhile, and only meanwhile: a store that is there is only read.
    """
    settings = request.settings.model_dump() | {"memory_limit": request.engine.staging_memory}
    with exclusive([str(request.store)], wait=request.waits):
        record = stages.stage(request.source, request.store, settings)
    if record["reused"]:
        _log_reuse("stage")
    return record


def graph(job: Job) -> dict[str, Any] | None:
    """Make the graph of the method, unless it lies beside the store. Returns its record."""
    record = stages.build_graph(str(job.store), job.method, job.parameters)
    if record and record["reused"]:
        log.info("graph: reused the one beside the store")
    return record


def select(job: Job, earlier: Sequence[dict[str, Any]]) -> str:
    """Select features, unless the run has them. `earlier` holds the records of earlier steps.

    Returns the directory of the run, which stays partial until `report`.
    """
    key = key_of(job)
    run = reuse.find_run(job.folder, key)
    if run is not None and reuse.is_selected(run) and not job.fresh:
        _log_reuse("select")
        return job.folder
    run = stages.select(
        str(job.store),
        job.folder,
        method=job.method,
        features=job.features,
        parameters=job.parameters,
        earlier=list(earlier),
        metric=job.metric,
        about={"key": key, "corpus": job.corpus},
    )
    for loop, step in run.metadata["resumed"].items():
        log.info("select: %s resumed from step %d of an earlier attempt", loop, step)
    return job.folder


def evaluate(job: Job) -> str:
    """Score the selection, unless the run has these scores. Returns the directory of the run."""
    run, choices = run_of(job), job.scoring.choices()
    if reuse.is_scored(run, choices):
        _log_reuse("evaluate")
    elif run.path == run.final:
        stages.evaluate_again(job.folder, choices)
    else:
        stages.evaluate(run, **choices)
    return job.folder


def report(job: Job) -> str:
    """Write the report and finish the run, unless it is. Returns its directory."""
    run = run_of(job)
    if reuse.is_reported(run):
        _log_reuse("report")
    else:
        stages.finish(run)
    return job.folder


def key_of(job: Job) -> str:
    """Return the key of the selection from the store as it is now."""
    return job.key(storage.open(str(job.store)).spec["content"], str(job.store))


def run_of(job: Job) -> Run:
    """Return the run of a job that has selected."""
    run = reuse.find_run(job.folder, key_of(job))
    if run is None:
        raise RunError(f"{job.out} was removed or replaced during the run: repeat the command")
    return run


def _log_reuse(step: str) -> None:
    log.info("%s: reused the result of an earlier run", step)
