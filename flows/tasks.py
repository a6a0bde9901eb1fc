"""The stages as Prefect tasks: cached by content, tried again on I/O errors, within a time, and
seen.

A task returns a path or a small record. Its cached result counts only while what it made is still
there, so each task is called through `once`, which looks.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from prefect import get_run_logger, runtime, task
from prefect.settings import get_current_settings
from prefect.tasks import Task, exponential_backoff

import bigfs
import flows
import storage
from flows import artifacts, stages
from storage.errors import StoreError
from storage.runs import Run, RunError

DAY = 24 * 3600.0
# trying again does not help
LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG}
CLIENTS = {"botocore", "aiohttp"}  # of object stores: what they raise is no OSError


def transient(_task: Any, _run: Any, state: Any) -> bool:
    """Whether an error is of the kind that goes away: the network's and the disk's, not a missing
    file's or a full disk's.
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
    return not isinstance(error, missing) and error.errno not in LASTING


def by_content(context: Any, parameters: Mapping[str, Any]) -> str:
    return f"bigfs-{context.task.name}-{parameters['key']}"


STAGE: dict[str, Any] = {
    "cache_key_fn": by_content,
    "persist_result": True,
    "result_serializer": "json",
    "retries": 4,
    "retry_delay_seconds": exponential_backoff(5),
    "retry_jitter_factor": 0.5,
    "retry_condition_fn": transient,
}


@task(name="stage", tags=["bigfs", "io"], **STAGE)
def stage(source: str, store: str | None, settings: dict[str, Any], key: str) -> dict[str, Any]:
    with artifacts.progress("stage"):
        return stages.stage(source, store, settings)


@task(name="graph", tags=["bigfs", "io"], **STAGE)
def graph(store: str, method: str, parameters: dict[str, Any], key: str) -> dict[str, Any] | None:
    with artifacts.progress("graph"):
        record = stages.build_graph(store, method, parameters)
    if record and record["reused"]:
        get_run_logger().info("graph: reused, it lies beside the store")
    return record


@task(name="select", tags=["bigfs"], task_run_name="select {features} by {method}", **STAGE)
def select(
    store: str,
    out: str,
    method: str,
    features: int,
    parameters: dict[str, Any],
    key: str,
    before: list[dict[str, Any]],
) -> str:
    with artifacts.progress("select"):
        run = stages.select(
            store, out, method=method, features=features, parameters=parameters, before=before
        )
    for loop, steps in run.about["resumed"].items():
        get_run_logger().info("select: %s went on from step %d of an earlier try", loop, steps)
    run.note(key=key, prefect=_own_id())
    artifacts.show_selection(run)
    return out


@task(name="evaluate", tags=["bigfs"], **STAGE)
def evaluate(out: str, key: str) -> str:
    run = _require(out, key)
    with artifacts.progress("evaluate"):
        stages.evaluate(run)
    artifacts.show_curves(run)
    return out


@task(name="report", tags=["bigfs"], **STAGE)
def report(out: str, key: str) -> str:
    run = _require(out, key)
    path = stages.finish(run)
    artifacts.show_summary(run)
    return str(path)


# --- what is done is not done again ---------------------------------------------------------------


class How(NamedTuple):
    """How a flow was asked to work."""

    fresh: bool  # do again what is done
    timeout: float  # seconds a stage may take
    memory_limit: str | None  # of a task of staging


def once(stage: Task[..., Any], there: bool, how: How, *given: Any) -> Any:
    """Run a task, or take its cached result if what it made is `there`; the log says which."""
    log = get_run_logger()
    state: Any = stage.with_options(
        refresh_cache=how.fresh or not there, timeout_seconds=how.timeout
    )(*given, return_state=True)
    result = state.result()
    if state.name == "Cached":
        log.info("%s: reused, done by an earlier run", stage.name)
    return result


def run_at(out: str, key: str) -> Run | None:
    """The run of this content at `out`, whole or at work; None where there is none."""
    for opened in (Run.at_work, Run.open):
        with contextlib.suppress(RunError):
            run = opened(out)
            if run.about.get("key") == key:
                return run
    return None


def _require(out: str, key: str) -> Run:
    run = run_at(out, key)
    if run is None:
        raise RunError(f"{out} was removed or replaced while it was worked on: run it again")
    return run


def content_key(*parts: Any) -> str:
    """Of the inputs and of the program: what they were, not where Prefect keeps its results."""
    return digest([*parts, _program()])[:24]


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


@cache
def _program() -> str:
    """The packages' own source, so that a changed program never takes an old one's results for its
    own.
    """
    source = hashlib.sha256()
    for package in (bigfs, storage, flows):
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            source.update(file.read_bytes())
    return source.hexdigest()


def _own_id() -> dict[str, Any]:
    """The flow run that made a run directory; its page only where the server has pages, which a
    run's own server has not.
    """
    run, settings = runtime.flow_run, get_current_settings()
    url = run.get_flow_run_ui_url() if settings.ui_url and settings.server.ui.enabled else None
    return {
        "flow_run_id": run.get_id(),
        "flow_run_name": run.get_name(),
        "flow": run.get_flow_name(),
        "url": url,
    }
