"""The stages as Prefect tasks, with caching by content, retries on I/O errors, time limits and
progress.

A task returns a path or a small record. Its cached result is valid only while its files still
exist, so each task is called through `do_task`, which checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect import get_run_logger, runtime, task
from prefect.settings import get_current_settings
from prefect.tasks import Task, exponential_backoff

from flows import artifacts, job
from flows.selection import Features

DAY = 24 * 3600.0


def is_transient(_task: Any, _run: Any, state: Any) -> bool:
    """Return whether a retry may fix the error of a task."""
    return job.is_transient(state.data)


def cache_key(context: Any, parameters: Mapping[str, Any]) -> str:
    return f"bigfs-{context.task.name}-{parameters['key']}"


TASK_DEFAULTS: dict[str, Any] = {
    "cache_key_fn": cache_key,
    "persist_result": True,
    "result_serializer": "json",
    "retries": job.RETRIES,
    "retry_delay_seconds": exponential_backoff(job.FIRST_WAIT),
    "retry_jitter_factor": job.JITTER,
    "retry_condition_fn": is_transient,
}


@task(name="stage", tags=["bigfs", "io"], **TASK_DEFAULTS)
def stage(source: str, store: str | None, settings: dict[str, Any], key: str) -> dict[str, Any]:
    with artifacts.progress("stage"):
        return job.stage(source, store, settings, key)


@task(name="graph", tags=["bigfs", "io"], **TASK_DEFAULTS)
def graph(store: str, method: str, parameters: dict[str, Any], key: str) -> dict[str, Any] | None:
    with artifacts.progress("graph"):
        record = job.graph(store, method, parameters, key)
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
        run = job.select(store, out, method, features, parameters, key, earlier, metric)
    for loop, steps in run.metadata["resumed"].items():
        get_run_logger().info("select: %s resumed from step %d of an earlier attempt", loop, steps)
    run.update_metadata(prefect=_flow_run_info())
    artifacts.show_selection(run)
    return out


@task(name="evaluate", tags=["bigfs"], **TASK_DEFAULTS)
def evaluate(out: str, key: str, scoring: dict[str, Any]) -> str:
    with artifacts.progress("evaluate"):
        run = job.evaluate(out, key, scoring)
    artifacts.show_curves(run)
    return out


@task(name="report", tags=["bigfs"], **TASK_DEFAULTS)
def report(out: str, key: str) -> str:
    run = job.report(out, key)
    artifacts.show_summary(run)
    return str(run.final)


TASKS: dict[str, Task[..., Any]] = {
    "stage": stage,
    "graph": graph,
    "select": select,
    "evaluate": evaluate,
    "report": report,
}


def do_task(name: str, exists: bool, options: job.StepOptions, *arguments: Any) -> Any:
    """Run a step as a task, or take its cached result if its files still exist.

    It is a `flows.job.DoStep`. The log says which it was.
    """
    log = get_run_logger()
    state: Any = TASKS[name].with_options(
        refresh_cache=options.fresh or not exists, timeout_seconds=options.timeout
    )(*arguments, return_state=True)
    result = state.result()
    if state.name == "Cached":
        log.info("%s: reused the result of an earlier run", name)
    return result


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
