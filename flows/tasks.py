"""The stages as Prefect tasks, with caching by content, retries on I/O errors, time limits and
progress.

A task returns a path or a small record. Its cached result is valid only while its files still
exist, so each task is called through `run_cached`, which checks.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from prefect import get_run_logger, runtime, task
from prefect.settings import get_current_settings
from prefect.tasks import Task, exponential_backoff

from flows import artifacts, stages
from flows.reuse import find_run
from flows.selection import Features
from storage.errors import StoreError
from storage.runs import Run, RunError

DAY = 24 * 3600.0
# errors that a retry does not fix
PERMANENT_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG}
CLIENTS = {"botocore", "aiohttp"}  # clients of object stores, whose errors are no OSError


def is_transient(_task: Any, _run: Any, state: Any) -> bool:
    """Return whether a retry may fix the error of a task.

    It may fix an error of the network or the disk, but not a missing file or a full disk.
    """
    error = (isinstance(state.data, StoreError) and state.data.__cause__) or state.data
    if type(error).__module__.split(".")[0] in CLIENTS:
        return True
    if type(error).__name__ == "TaskRunTimeoutError" or not isinstance(error, OSError):
        return False
    missing = (
        FileNotFoundError
        | PermissionError
        | FileExistsError
        | NotADirectoryError
        | IsADirectoryError
    )
    return not isinstance(error, missing) and error.errno not in PERMANENT_ERRORS


def cache_key(context: Any, parameters: Mapping[str, Any]) -> str:
    return f"bigfs-{context.task.name}-{parameters['key']}"


TASK_DEFAULTS: dict[str, Any] = {
    "cache_key_fn": cache_key,
    "persist_result": True,
    "result_serializer": "json",
    "retries": 4,
    "retry_delay_seconds": exponential_backoff(5),
    "retry_jitter_factor": 0.5,
    "retry_condition_fn": is_transient,
}


@task(name="stage", tags=["bigfs", "io"], **TASK_DEFAULTS)
def stage(source: str, store: str | None, settings: dict[str, Any], key: str) -> dict[str, Any]:
    with artifacts.progress("stage"):
        return stages.stage(source, store, settings)


@task(name="graph", tags=["bigfs", "io"], **TASK_DEFAULTS)
def graph(store: str, method: str, parameters: dict[str, Any], key: str) -> dict[str, Any] | None:
    with artifacts.progress("graph"):
        record = stages.build_graph(store, method, parameters)
    if record and record["reused"]:
        get_run_logger().info("graph: reused the one beside the store")
    return record


@task(name="select", tags=["bigfs"], task_run_name="select {features} by {method}", **TASK_DEFAULTS)
def select(
    store: str,
    out: str,
    method: str,
    features: Features,
    parameters: dict[str, Any],
    key: str,
    earlier: list[dict[str, Any]],
    metric: str | None,
) -> str:
    with artifacts.progress("select"):
        run = stages.select(
            store,
            out,
            method=method,
            features=features,
            parameters=parameters,
            earlier=earlier,
            metric=metric,
        )
    for loop, steps in run.metadata["resumed"].items():
        get_run_logger().info("select: %s resumed from step %d of an earlier attempt", loop, steps)
    with stages.abandon_on_error(run):
        run.update_metadata(key=key, prefect=_flow_run_info())
    artifacts.show_selection(run)
    return out


@task(name="evaluate", tags=["bigfs"], **TASK_DEFAULTS)
def evaluate(out: str, key: str, scoring: dict[str, Any]) -> str:
    run = _require_run(out, key)
    with artifacts.progress("evaluate"):
        stages.evaluate(run, **scoring)
    artifacts.show_curves(run)
    return out


@task(name="report", tags=["bigfs"], **TASK_DEFAULTS)
def report(out: str, key: str) -> str:
    run = _require_run(out, key)
    path = stages.finish(run)
    artifacts.show_summary(run)
    return str(path)


# --- reuse of earlier results ---------------------------------------------------------------------


class TaskOptions(NamedTuple):
    """Options of a flow that its tasks share."""

    fresh: bool  # repeat finished work
    timeout: float  # seconds per stage
    memory_limit: str | None  # per staging task
    scoring: Mapping[str, Any] = MappingProxyType({})  # choices of `flows.options.Scoring`


def run_cached(
    stage_task: Task[..., Any], exists: bool, options: TaskOptions, *arguments: Any
) -> Any:
    """Run a task, or take its cached result if its files still exist. The log says which."""
    log = get_run_logger()
    state: Any = stage_task.with_options(
        refresh_cache=options.fresh or not exists, timeout_seconds=options.timeout
    )(*arguments, return_state=True)
    result = state.result()
    if state.name == "Cached":
        log.info("%s: reused the result of an earlier run", stage_task.name)
    return result


def _require_run(out: str, key: str) -> Run:
    run = find_run(out, key)
    if run is None:
        raise RunError(f"{out} was removed or replaced during the run: repeat the command")
    return run


def _flow_run_info() -> dict[str, Any]:
    """Return the flow run that writes a run directory, with its page if the server has pages.

    The server of a single run has none.
    """
    run, settings = runtime.flow_run, get_current_settings()
    url = run.get_flow_run_ui_url() if settings.ui_url and settings.server.ui.enabled else None
    return {
        "flow_run_id": run.get_id(),
        "flow_run_name": run.get_name(),
        "flow": run.get_flow_name(),
        "url": url,
    }
