"""The main job, step by step: stage → graph → select → evaluate → report, each unless its result
exists.

`run_job` does the steps in this process. `flows.pipeline` runs the same steps as tasks of Prefect.
Nothing here imports Prefect, because that takes longer than a small selection.
"""

from __future__ import annotations

import errno
import importlib
import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import storage
from flows import evaluation, reuse, selection, stages
from flows.locks import exclusive
from flows.options import Engine, Scoring, Staging
from flows.selection import Features
from storage.errors import StoreError
from storage.runs import Run, RunError, recover, require_out
from storage.staging.plan import Plan, is_staged, make_plan

log = logging.getLogger("bigfs.flows")
RETRIES = 4  # of a step after an error that may pass
FIRST_WAIT = 5.0  # seconds before the first retry; each later one waits twice as long
JITTER = 0.5  # share of a wait that is random, so that jobs do not return at once
# errors that a retry does not fix
PERMANENT_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG}
CLIENTS = {"botocore", "aiohttp"}  # clients of object stores, whose errors are no OSError


class StepOptions(NamedTuple):
    """Options of a job that its steps share."""

    fresh: bool  # repeat finished work
    timeout: float  # seconds per step, where Prefect runs it
    memory_limit: str | None  # per staging task
    scoring: Mapping[str, Any] = MappingProxyType({})  # choices of `flows.options.Scoring`


class DoStep(Protocol):
    """Does a step of the job, or takes over its result if that exists."""

    def __call__(self, name: str, exists: bool, options: StepOptions, *arguments: Any) -> Any:
        """Return the step's result.

        Parameters
        ----------
        name : str
            The step.
        exists : bool
            Whether its result exists.
        options : StepOptions
            The options of the job.
        *arguments : object
            Arguments of the step.

        Returns
        -------
        object
            The step's result. `do_step` returns None if it was there.
        """


# --- the job --------------------------------------------------------------------------------------


def run_job(
    source: str,
    method: str,
    features: Features,
    store: str | None,
    out: str,
    settings: Staging,
    parameters: dict[str, Any],
    engine: Engine,
    *,
    fresh: bool = False,
    scoring: Scoring,
) -> str:
    """Do the whole job in this process, as `flows.pipeline.pipeline` does it with Prefect.

    Returns the directory of the run.
    """
    store_plan = plan_store(source, store, settings)
    options = StepOptions(fresh, float("inf"), engine.staging_memory, scoring.choices())
    selection.require_parameters(method, features, parameters)
    require_out(out)
    import_beside("bigfs.ready")  # the workers start meanwhile
    with exclusive([store_plan.uri, out], wait=True, say=say), engine.cluster():
        if not is_staged(store_plan):  # this process has little to do meanwhile
            import_beside("flows.report")
        earlier = [
            start_up("Python, Dask"),
            stage_source(do_step, store_plan, source, settings, options),
        ]
        run_steps(
            do_step,
            store_plan.uri,
            store_plan.key,
            out,
            method,
            features,
            parameters,
            earlier,
            options,
        )
    return out


def say(text: str) -> None:
    """Print a line of this program on stderr."""
    print(f"bigfs: {text}", file=sys.stderr, flush=True)


def import_beside(module: str) -> None:
    """Import a module in a thread, while this one waits for others."""
    threading.Thread(target=importlib.import_module, args=(module,), daemon=True).start()


def plan_store(source: str, store: str | None, settings: Staging) -> Plan:
    return make_plan(source, store, **settings.model_dump())


def stage_source(
    do: DoStep, store_plan: Plan, source: str, settings: Staging, options: StepOptions
) -> dict[str, Any]:
    """Stage a source unless its store exists. Returns the record of the stage."""
    reused = is_staged(store_plan)
    staging = settings.model_dump() | {"memory_limit": options.memory_limit}
    key = reuse.content_key(store_plan.key, store_plan.uri)
    record = do("stage", reused, options, source, store_plan.uri, staging, key)
    if record is None:
        record = stage(source, store_plan.uri, staging, key)
    return {**record, "reused": reused}


def run_steps(
    do: DoStep,
    store: str,
    content: str,
    out: str,
    method: str,
    features: Features,
    parameters: dict[str, Any],
    earlier: Sequence[dict[str, Any]],
    options: StepOptions,
) -> Any:
    """Select, evaluate and report, except for the results that the run at `out` already has.

    Returns the result of the last step.
    """
    recover(out)
    key = reuse.selection_key(content, store, out, method, features, parameters, options.scoring)
    run = reuse.find_run(out, key)
    if run is not None and not reuse.is_selected(run):
        run = None
    scoring = dict(options.scoring)
    is_scored = run is not None and reuse.is_scored(run, scoring)
    complete = run is not None and reuse.is_whole(run) and is_scored
    corpus = storage.open(store)
    selection.selector_for(corpus, method, features, parameters)
    evaluation.require_choices(corpus, features, **scoring)
    # the graph lies beside the store and serves every run
    if selection.get_method(method).graph and (options.fresh or run is None):
        earlier = [*earlier, do("graph", False, options, store, method, parameters, key)]
    do(
        "select",
        run is not None,
        options,
        store,
        out,
        method,
        features,
        parameters,
        key,
        list(earlier),
        reuse.number_metric(features, options.scoring),
    )
    do("evaluate", is_scored, options, out, key, scoring)
    return do("report", complete, options, out, key)


def start_up(loaded: str) -> dict[str, Any]:
    """Return the record of all that happened before the first step."""
    return {
        "stage": f"start-up ({loaded})",
        "seconds": stages.process_age(),
        "peak_memory": stages.process_memory(),
    }


# --- the steps ------------------------------------------------------------------------------------


def stage(source: str, store: str | None, settings: dict[str, Any], key: str) -> dict[str, Any]:
    return stages.stage(source, store, settings)


def graph(store: str, method: str, parameters: dict[str, Any], key: str) -> dict[str, Any] | None:
    return stages.build_graph(store, method, parameters)


def select(
    store: str,
    out: str,
    method: str,
    features: Features,
    parameters: dict[str, Any],
    key: str,
    earlier: list[dict[str, Any]],
    metric: str | None,
) -> Run:
    run = stages.select(
        store,
        out,
        method=method,
        features=features,
        parameters=parameters,
        earlier=earlier,
        metric=metric,
    )
    with stages.abandon_on_error(run):
        run.update_metadata(key=key)
    return run


def evaluate(out: str, key: str, scoring: dict[str, Any]) -> Run:
    run = require_run(out, key)
    import_beside("flows.report")  # matplotlib
    stages.evaluate(run, **scoring)
    return run


def report(out: str, key: str) -> Run:
    run = require_run(out, key)
    stages.finish(run)
    return run


def require_run(out: str, key: str) -> Run:
    """Return the run of this content at `out`."""
    run = reuse.find_run(out, key)
    if run is None:
        raise RunError(f"{out} was removed or replaced during the run: repeat the command")
    return run


STEPS: dict[str, Callable[..., Any]] = {
    "stage": stage,
    "graph": graph,
    "select": select,
    "evaluate": evaluate,
    "report": report,
}


def do_step(name: str, exists: bool, options: StepOptions, *arguments: Any) -> Any:
    """Do a step in this process, and again after an error that may pass. A `DoStep`."""
    if exists and not options.fresh:
        log.info("%s: reused the result of an earlier run", name)
        return None
    retries = 0
    while True:
        try:
            return STEPS[name](*arguments)
        except Exception as error:
            if retries == RETRIES or not is_transient(error):
                raise
            wait = FIRST_WAIT * 2**retries * (1 + JITTER * random.random())
            say(f"{name}: {' '.join(str(error).split())}; trying again in {wait:.0f} s")
            time.sleep(wait)
            retries += 1


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may fix an error.

    It may fix an error of the network or the disk, but not a missing file or a full disk.
    """
    error = (isinstance(error, StoreError) and error.__cause__) or error
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
