"""The Prefect flows: the main job (stage → graph → select → evaluate → report) and single stages.

Tasks pass URIs and paths. One Dask cluster serves them all: the flow opens it (or connects to the
engine's scheduler) and each stage submits its own graph, so nothing waits inside a busy worker.

Annotations are evaluated here, not kept as strings, because `serve` pickles a flow with its types.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_link_artifact
from prefect.states import Completed, State

import storage
from flows import job, reuse, selection, tasks
from flows import parameters as form
from flows.locks import AlreadyRunning, exclusive
from flows.options import Engine, Scoring, Staging
from flows.serve_limits import require_allowed
from storage.corpus import require_staged
from storage.runs import Run, RunError, require_out


@flow(name="bigfs", flow_run_name="{features} features of {source} by {method}")
def pipeline(
    source: form.Source,
    method: form.Method = "sparge-lda",
    features: form.FeaturesOrAuto = 500,
    store: form.StoreOrDefault = None,
    out: form.Out = None,
    settings: Staging | None = None,
    parameters: form.Parameters = None,
    engine: Engine | None = None,
    overlap: form.Overlap = "wait",
    fresh: form.Fresh = False,
    timeout: form.Timeout = tasks.DAY,
    scoring: Scoring | None = None,
) -> "str | State[str]":
    """Select features of a corpus and report on them.

    The stages are staging, graph, selection, evaluation and report. A stage whose result exists is
    not repeated.

    Parameters
    ----------
    source : str
        Path, URL, or name that `bigfs datasets` lists.
    method : str, default="sparge-lda"
        Method, as `bigfs methods` lists it.
    features : int, "auto", "percentile", "fpr", "fdr" or "fwe", default=500
        Number of features to keep. "auto" takes the smallest within one standard error of the best,
        by folds of the training samples and the first metric of `scoring`. The others choose it by
        p-values, at the level that is the parameter `param`.
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
        Whether to select, evaluate and report again even if the result exists.
    timeout : float, default=86400
        Seconds that one stage may take.
    scoring : Scoring or None, default=None
        Metrics, sizes and rivals of the score. None takes those of the kind of target.

    Returns
    -------
    str or State
        Directory of the run, or the state `Skipped`.

    See Also
    --------
    flows.sweep.sweep : Compare methods, numbers of features and parameters.
    """
    settings, engine = settings or Staging(), engine or Engine()
    choices = (scoring or Scoring()).choices()
    run_dir = out or reuse.default_out(source, method, features)
    require_allowed(engine, source, store, out, *settings.files)
    selection.require_parameters(method, features, parameters or {})
    require_out(run_dir)
    store_plan = job.plan_store(source, store, settings)
    options = job.StepOptions(fresh, timeout, engine.staging_memory, choices)
    with skip_if_busy(), exclusive_on_cluster([store_plan.uri, run_dir], overlap, engine):
        earlier = [
            job.start_up("Python, Prefect, Dask"),
            job.stage_source(tasks.do_task, store_plan, source, settings, options),
        ]
        return job.run_steps(
            tasks.do_task,
            store_plan.uri,
            store_plan.key,
            run_dir,
            method,
            features,
            parameters or {},
            earlier,
            options,
        )
    return SKIPPED


@flow(name="stage", flow_run_name="stage {source}")
def stage(
    source: form.Source,
    store: form.StoreOrDefault = None,
    settings: Staging | None = None,
    engine: Engine | None = None,
    timeout: form.Timeout = tasks.DAY,
) -> str:
    """Stage a source as a corpus store. Returns the store's URI."""
    settings, engine = settings or Staging(), engine or Engine()
    require_allowed(engine, source, store, *settings.files)
    with on_cluster(engine):
        options = job.StepOptions(False, timeout, engine.staging_memory)
        plan = job.plan_store(source, store, settings)
        return job.stage_source(tasks.do_task, plan, source, settings, options)["store"]


@flow(name="select", flow_run_name="{features} features of {store} by {method}")
def select(
    store: form.Store,
    out: form.RunDirectory,
    method: form.Method = "sparge-lda",
    features: form.FeaturesOrAuto = 500,
    parameters: form.Parameters = None,
    engine: Engine | None = None,
    overlap: form.Overlap = "wait",
    fresh: form.Fresh = False,
    timeout: form.Timeout = tasks.DAY,
    scoring: Scoring | None = None,
) -> "str | State[str]":
    """Select features of an existing store, evaluate them and write the report.

    Returns the run's directory.
    """
    engine, choices = engine or Engine(), (scoring or Scoring()).choices()
    require_allowed(engine, store, out)
    corpus = require_staged(storage.open(store))
    selection.selector_for(corpus, method, features, parameters or {})
    require_out(out)
    with skip_if_busy(), exclusive_on_cluster([corpus.uri, out], overlap, engine):
        options = job.StepOptions(fresh, timeout, engine.staging_memory, choices)
        return job.run_steps(
            tasks.do_task,
            corpus.uri,
            corpus.manifest.key,
            out,
            method,
            features,
            parameters or {},
            [],
            options,
        )
    return SKIPPED


@flow(name="evaluate", flow_run_name="evaluate {run}")
def evaluate(
    run: form.RunDirectory,
    engine: Engine | None = None,
    timeout: form.Timeout = tasks.DAY,
    scoring: Scoring | None = None,
) -> str:
    """Evaluate a run again and rewrite its report. Returns the run's directory."""
    engine, choices = engine or Engine(), (scoring or Scoring()).choices()
    require_allowed(engine, run)
    key = Run.open(run).metadata.get("key")
    if key is None:
        raise RunError(f"no flow wrote {run}: use `bigfs evaluate {run}`")
    options = job.StepOptions(True, timeout, engine.staging_memory)
    with exclusive_on_cluster([run], "wait", engine):
        tasks.do_task("evaluate", False, options, run, key, choices)
        return tasks.do_task("report", False, options, run, key)


# --- shared by the flows --------------------------------------------------------------------------

SKIPPED: State[Any] = Completed(
    name="Skipped", message="skipped: another run works on the same corpus or directory"
)


@contextlib.contextmanager
def skip_if_busy() -> Iterator[None]:
    """End the block if another run holds a lock and this one does not wait."""
    try:
        yield
    except AlreadyRunning as error:
        get_run_logger().warning("skipped: %s", error)


@contextlib.contextmanager
def exclusive_on_cluster(paths: Sequence[str], overlap: str, engine: Engine) -> Iterator[None]:
    """Lock `paths` and start or reach the flow's Dask cluster for the block."""
    with exclusive(paths, wait=overlap == "wait", say=_say), on_cluster(engine):
        yield


def _say(text: str) -> None:
    """Write to the flow's log, and to stderr if the command line silences the log."""
    get_run_logger().info(text)
    if not get_run_logger().isEnabledFor(logging.INFO):
        print(f"bigfs: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def on_cluster(engine: Engine) -> Iterator[None]:
    """Start or reach the flow's Dask cluster for the block, and log its dashboard."""
    with engine.cluster() as client:
        wants_link = engine.dashboard or engine.scheduler is not None
        if client is not None and wants_link and "dashboard" in client.scheduler_info()["services"]:
            get_run_logger().info("Dask dashboard: %s", client.dashboard_link)
            create_link_artifact(
                client.dashboard_link, link_text="Dask dashboard", key="dask-dashboard"
            )
        yield
