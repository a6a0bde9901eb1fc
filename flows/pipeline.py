"""The Prefect flows: the main job (stage → graph → select → evaluate → report) and its stages one
by one.

Tasks pass URIs and paths. One Dask cluster serves them all: the flow opens it (or connects to the
engine's scheduler) and each stage submits its own graph, so nothing waits inside a busy worker.

Annotations are evaluated here, not kept as strings: `serve` pickles a flow, and its types go along.
"""

import contextlib
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from prefect import flow, get_run_logger
from prefect.artifacts import create_link_artifact
from prefect.states import Completed, State

import storage
from flows import parameters as form
from flows import stages, tasks
from flows.locks import Busy, alone
from flows.options import Engine, Staging
from flows.served import require_served
from storage.corpus import require_staged
from storage.runs import Run, RunError, recover, require_out
from storage.staging.plan import Plan, is_staged, make_plan


@flow(name="bigfs", flow_run_name="{features} features of {source} by {method}")
def pipeline(
    source: form.Source,
    method: form.Method = "sparge-lda",
    features: form.Features = 500,
    store: form.OwnStore = None,
    out: form.Out = None,
    settings: Staging | None = None,
    parameters: form.Parameters = None,
    engine: Engine | None = None,
    overlap: form.Overlap = "wait",
    fresh: form.Fresh = False,
    timeout: form.Timeout = tasks.DAY,
) -> "str | State[str]":
    """Select features of a corpus and report on them.

    The stages are staging, graph, selection, evaluation and report. A stage whose result is there
    already is not repeated.

    Parameters
    ----------
    source : str
        Path, URL, or name that `bigfs datasets` lists.
    method : str, default="sparge-lda"
        Method, as `bigfs methods` lists it.
    features : int, default=500
        Number of features to keep.
    store : str or None, default=None
        Path or URL of the store. None takes the name by the source's name and content.
    out : str or None, default=None
        Directory of the run. None takes a name in ``runs/``.
    settings : Staging or None, default=None
        How the source is staged. None takes the defaults of `storage.stage`.
    parameters : dict or None, default=None
        Parameters of the method, by the names of its class.
    engine : Engine or None, default=None
        Where the work is done. None starts a process per core on this machine.
    overlap : {"wait", "skip"}, default="wait"
        What to do while another run works on the same store or directory.
    fresh : bool, default=False
        Whether to select, evaluate and report again where the result is there already.
    timeout : float, default=86400
        Seconds that one stage may take.

    Returns
    -------
    str or State
        Directory of the run, or the state `Skipped`.

    See Also
    --------
    flows.sweep.sweep : Compare methods, numbers of features and parameters.
    """
    settings, engine, where = (
        settings or Staging(),
        engine or Engine(),
        out or stages.default_out(source, method, features),
    )
    require_served(engine, source, store, out)
    stages.require_parameters(method, features, parameters or {})
    require_out(where)
    planned, how = (
        planned_store(source, store, settings),
        tasks.How(fresh, timeout, engine.staging_memory),
    )
    with skipping(), at_work([planned.uri, where], overlap, engine):
        before = [start_up(), stage_once(planned, source, settings, how)]
        return run_once(
            planned.uri, planned.key, where, method, features, parameters or {}, before, how
        )
    return SKIPPED


@flow(name="stage", flow_run_name="stage {source}")
def stage(
    source: form.Source,
    store: form.OwnStore = None,
    settings: Staging | None = None,
    engine: Engine | None = None,
    timeout: form.Timeout = tasks.DAY,
) -> str:
    """Stage a source as a corpus store. Returns the store's URI."""
    settings, engine = settings or Staging(), engine or Engine()
    require_served(engine, source, store)
    with connected(engine):
        how = tasks.How(False, timeout, engine.staging_memory)
        return stage_once(planned_store(source, store, settings), source, settings, how)["store"]


@flow(name="select", flow_run_name="{features} features of {store} by {method}")
def select(
    store: form.Store,
    out: form.RunDirectory,
    method: form.Method = "sparge-lda",
    features: form.Features = 500,
    parameters: form.Parameters = None,
    engine: Engine | None = None,
    overlap: form.Overlap = "wait",
    fresh: form.Fresh = False,
    timeout: form.Timeout = tasks.DAY,
) -> "str | State[str]":
    """Select features of an existing store, evaluate them and write the report.

    Returns the run's directory.
    """
    engine = engine or Engine()
    require_served(engine, store, out)
    corpus = require_staged(storage.open(store))
    stages.selector_for(corpus, method, features, parameters or {})
    require_out(out)
    with skipping(), at_work([corpus.uri, out], overlap, engine):
        how = tasks.How(fresh, timeout, engine.staging_memory)
        return run_once(
            corpus.uri, corpus.manifest.key, out, method, features, parameters or {}, [], how
        )
    return SKIPPED


@flow(name="evaluate", flow_run_name="evaluate {run}")
def evaluate(
    run: form.RunDirectory, engine: Engine | None = None, timeout: form.Timeout = tasks.DAY
) -> str:
    """Evaluate a run again and rewrite its report. Returns the run's directory."""
    engine = engine or Engine()
    require_served(engine, run)
    key = Run.open(run).metadata.get("key")
    if key is None:
        raise RunError(f"no flow wrote {run}: use `bigfs evaluate {run}`")
    how = tasks.How(True, timeout, engine.staging_memory)
    with at_work([run], "wait", engine):
        tasks.once(tasks.evaluate, False, how, run, key)
        return tasks.once(tasks.report, False, how, run, key)


# --- what the flows share -------------------------------------------------------------------------

SKIPPED: State[Any] = Completed(
    name="Skipped", message="skipped: another run works on the same corpus or directory"
)


@contextlib.contextmanager
def skipping() -> Iterator[None]:
    """End the block if another run holds a lock and this one does not wait."""
    try:
        yield
    except Busy as busy:
        get_run_logger().warning("skipped: %s", busy)


@contextlib.contextmanager
def at_work(places: Sequence[str], overlap: str, engine: Engine) -> Iterator[None]:
    """Lock `places` and start or reach the flow's Dask cluster for the block."""
    with alone(places, wait=overlap == "wait", say=_say), connected(engine):
        yield


def _say(text: str) -> None:
    """Write to the flow's log, and to stderr if the command line silences the log."""
    get_run_logger().info(text)
    if not get_run_logger().isEnabledFor(logging.INFO):
        print(f"bigfs: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def connected(engine: Engine) -> Iterator[None]:
    """Start or reach the flow's Dask cluster for the block, and log its dashboard."""
    with engine.cluster() as client:
        shown = engine.dashboard or engine.scheduler is not None
        if client is not None and shown and "dashboard" in client.scheduler_info()["services"]:
            get_run_logger().info("Dask dashboard: %s", client.dashboard_link)
            create_link_artifact(
                client.dashboard_link, link_text="Dask dashboard", key="dask-dashboard"
            )
        yield


def planned_store(source: str, store: str | None, settings: Staging) -> Plan:
    return make_plan(source, store, **settings.model_dump())


def stage_once(planned: Plan, source: str, settings: Staging, how: tasks.How) -> dict[str, Any]:
    """Stage a source unless its store exists. Returns the record of the stage."""
    there, options = is_staged(planned), settings.model_dump() | {"memory_limit": how.memory_limit}
    record = tasks.once(
        tasks.stage,
        there,
        how,
        source,
        planned.uri,
        options,
        tasks.content_key(planned.key, planned.uri),
    )
    return {**record, "reused": there}


def run_once(
    store: str,
    content: str,
    out: str,
    method: str,
    features: int,
    parameters: dict[str, Any],
    before: Sequence[dict[str, Any]],
    how: tasks.How,
) -> str:
    """Select, evaluate and report, except for the results that the run at `out` already has.

    Returns the directory of the run.
    """
    recover(out)
    key = tasks.content_key(content, store, out, method, features, parameters)
    done = tasks.run_at(out, key)
    about = {} if done is None else done.metadata
    whole = "curves" in about and (Path(out) / "report.html").exists()
    stages.selector_for(storage.open(store), method, features, parameters)
    # the graph lies beside the store and serves every run
    if stages.method_named(method).graph and (how.fresh or "status" not in about):
        before = [*before, tasks.once(tasks.graph, False, how, store, method, parameters, key)]
    tasks.once(
        tasks.select,
        "status" in about,
        how,
        store,
        out,
        method,
        features,
        parameters,
        key,
        list(before),
    )
    tasks.once(tasks.evaluate, "curves" in about, how, out, key)
    return tasks.once(tasks.report, whole, how, out, key)


def start_up() -> dict[str, Any]:
    age = time.time() - psutil.Process().create_time()
    return {
        "stage": "start-up (Python, Prefect, Dask)",
        "seconds": age,
        "peak_memory": stages.processes(),
    }
