"""The flows of Prefect: a run, a comparison, single steps, and a whole night. All of Prefect is
here and in `bigfs.flows.report.artifacts`.

A task is a plain function. Prefect caches no result: the disk says which steps are done. The
parameters of a flow are fields of a request. Their types are evaluated here, not kept as strings,
because `serve` pickles a flow with its types.
"""

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from prefect import flow, get_run_logger, runtime, task
from prefect.settings import get_current_settings
from prefect.states import Completed
from prefect.tasks import exponential_backoff
from pydantic import AfterValidator, Field

from bigfs import storage
from bigfs.flows import run as runs
from bigfs.flows import steps
from bigfs.flows.comparison import compare as comparison
from bigfs.flows.comparison import request as asked
from bigfs.flows.comparison.request import Comparison
from bigfs.flows.job import (
    DAY,
    Cluster,
    CurveScoring,
    Data,
    Features,
    Format,
    Fresh,
    Job,
    Method,
    Out,
    Overlap,
    Parameters,
    Part,
    RunFolder,
    Scores,
    Settings,
    Source,
    Split,
    StagedCorpus,
    Store,
    Timeout,
    said,
)
from bigfs.flows.options import (
    SECRET,
    UNSIGNED,
    ClusterOptions,
    RunScoring,
    Scoring,
    SourceOptions,
    seconds_of,
)
from bigfs.flows.report import artifacts
from bigfs.flows.use.files import require_local
from bigfs.flows.use.predict import predict as predict_samples
from bigfs.storage.errors import BusyError, SourceError, may_pass, redact
from bigfs.storage.format import manifest
from bigfs.storage.runs.runs import lock_run

# the defaults of parameters
SOURCE, CLUSTER, SCORING = SourceOptions(), ClusterOptions(), RunScoring()


# --- tasks ----------------------------------------------------------------------------------------


def _is_transient(_task: Any, _run: Any, state: Any) -> bool:
    return may_pass(state.data)


def _make_task(step: Callable[..., Any]) -> Any:
    decorate = task(
        name=step.__name__,
        tags=["bigfs"],
        persist_result=False,
        retries=runs.RETRIES.value,
        retry_delay_seconds=exponential_backoff(runs.FIRST_WAIT.value),
        retry_jitter_factor=runs.JITTER,
        retry_condition_fn=_is_transient,
    )
    return decorate(step)


STEPS = (steps.stage, steps.graph, steps.select, steps.evaluate, steps.report)
OTHERS = (
    *(steps.evaluate_again, comparison.run_method, predict_samples),
    *(storage.append, storage.find_unused, storage.delete_unused),
)
TASKS = {step: _make_task(step) for step in (*STEPS, *OTHERS)}
SHOW = {
    steps.select: artifacts.show_selection,
    steps.evaluate: artifacts.show_curves,
    steps.report: artifacts.show_summary,
}


def as_task(step: Callable[..., Any], request: Any, *arguments: Any) -> Any:
    """Call a step as a task, and show its result. A `bigfs.flows.run.Call`."""
    name = step.__name__
    if step is steps.select:
        name = f"select {request.features} by {request.method}"
    if step is comparison.run_method:
        name = arguments[-1]
    # a comparison's is the time of a method
    limit = None if isinstance(request, Comparison) else request.timeout
    is_new = step is steps.report and arguments[0].unfinished
    result = _call(step, request, *arguments, name=name, limit=limit)
    if step in SHOW:
        if "prefect" not in result.metadata:
            result.update_metadata(prefect=_flow_run_info())
        SHOW[step](result)
        if is_new:
            artifacts.tell_change(result)
    return result


def _call(
    step: Callable[..., Any],
    *arguments: Any,
    name: str | None = None,
    limit: float | None = None,
    **options: Any,
) -> Any:
    """Call a function as a task of this name, which must end in the time."""
    name = name or step.__name__
    named_task = TASKS[step].with_options(
        task_run_name=name.replace("{", "{{").replace("}", "}}"), timeout_seconds=limit
    )
    began = time.monotonic()
    try:
        return named_task(*arguments, **options)
    except TimeoutError as error:
        if limit is None or time.monotonic() - began < limit:
            raise
        raise TimeoutError(f"{name} took longer than {limit:g} s, its time limit") from error


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


# --- parameters -----------------------------------------------------------------------------------


def _place(place: str | None) -> str | None:
    """Return a path or a URL, which `$NAME` gives by a variable of the flow's process."""
    if place is None or not place.startswith("$"):
        require_shown(place)
        return place
    if place[1:] not in os.environ:
        raise ValueError(f"the flow's process has no variable {place[1:]}: set it for the worker")
    return os.environ[place[1:]]


def require_shown(*places: str | None) -> None:
    """Refuse a URL with credentials, because Prefect shows the parameters of a flow to all."""
    for place in places:
        if place is not None and re.search(SECRET, place):
            parts = urlsplit(place)
            raise SourceError(
                f"the URL of {parts.netloc.rpartition('@')[2]}{parts.path} holds credentials, "
                f"which Prefect's pages would show: set a variable for the worker, and give its "
                f"name as $NAME"
            )


Shown = Field(json_schema_extra=UNSIGNED)  # the server refuses it too, before it keeps it
Origin = Annotated[Source, Shown]
Target = Annotated[Store, Shown]
Corpus = Annotated[StagedCorpus, Shown]
NewSamples = Annotated[
    str, Shown, said("path or URL of the new samples, in the format of the corpus")
]
Folder = Annotated[str, said("folder of stores and runs")]
Also = Annotated[list[str] | None, said("other folders with runs, whose stores are kept")]
Keep = Annotated[
    str,
    AfterValidator(lambda age: seconds_of(age) and age),
    said("how long stores that no run names and earlier results of runs are kept: 12h, 30d or 4w"),
]


def name_run(template: str) -> Callable[[], str]:
    """Return a function that names a flow run by its parameters, without secrets of a URL."""

    def name() -> str:
        given = runtime.flow_run.get_parameters()
        if given.get("features", 0) is None:
            given = given | {"features": "the best"}
        if given.get("method", 0) is None:
            given = given | {"method": "SparGE"}
        return redact(template.format(**given))

    return name


# --- flows ----------------------------------------------------------------------------------------


@flow(name="bigfs", flow_run_name=name_run("{features} features of {source} by {method}"))
def run(
    source: Origin,
    method: Method = None,
    features: Features = None,
    store: Target = None,
    out: Out = None,
    settings: Settings = SOURCE,
    parameters: Parameters = {},  # noqa: B006, pydantic copies it
    engine: Cluster = CLUSTER,
    overlap: Overlap = "wait",
    fresh: Fresh = False,
    timeout: Timeout = DAY,
    scoring: CurveScoring = SCORING,
) -> Any:
    """Select features of a corpus and report on them: stage, graph, select, evaluate, report.

    A step whose result exists is not repeated.

    Returns
    -------
    str or State
        Directory of the run, or the state `Skipped`.

    See Also
    --------
    compare : Compare methods, numbers of features and parameters.
    nightly : Append new samples, select again, and delete old results.
    """
    return _run(_request(Job, locals()))


@flow(name="bigfs-select", flow_run_name=name_run("{features} features of {store} by {method}"))
def select(
    store: Corpus,
    out: Out = None,
    method: Method = None,
    features: Features = None,
    parameters: Parameters = {},  # noqa: B006
    engine: Cluster = CLUSTER,
    overlap: Overlap = "wait",
    fresh: Fresh = False,
    timeout: Timeout = DAY,
    scoring: CurveScoring = SCORING,
) -> Any:
    """Select features of a staged corpus and write the report, as `bigfs select` does.

    Returns the run's directory.
    """
    return _run(_request(Job, {"source": store, **locals()}), scored=False)


@flow(name="bigfs-stage", flow_run_name=name_run("stage {source}"))
def stage(
    source: Origin,
    store: Target = None,
    settings: Settings = SOURCE,
    engine: Cluster = CLUSTER,
    timeout: Timeout = DAY,
) -> str:
    """Stage a source as a corpus store. Returns the store's URI."""
    job = _request(Job, locals())
    job = job.model_copy(update={"store": runs.store_of(job)})
    with on_cluster(job.engine):
        return str(as_task(steps.stage, job)["store"])


@flow(name="bigfs-append", flow_run_name=name_run("append {source} to {store}"))
def append(
    source: NewSamples,
    store: Corpus,
    format: Format = None,
    split: Split = "train",
    engine: Cluster = CLUSTER,
    timeout: Timeout = DAY,
) -> str:
    """Add the samples of a source to a store, as `bigfs append` does. Returns the store's URI."""
    options = {"format": format, "split": split, "memory_limit": engine.staging_memory}
    with on_cluster(engine):
        return str(_call(storage.append, _place(source), _place(store), limit=timeout, **options))


@flow(name="bigfs-evaluate", flow_run_name="evaluate {run}")
def evaluate(
    run: RunFolder,
    engine: Cluster = CLUSTER,
    timeout: Timeout = DAY,
    scoring: CurveScoring = SCORING,
) -> str:
    """Evaluate a run again and rewrite its report, as `bigfs evaluate` does.

    Returns the run's directory.
    """
    with lock_run(run), on_cluster(engine):
        found = _call(steps.evaluate_again, run, scoring.choices(), name="evaluate", limit=timeout)
        artifacts.show_curves(found)
        artifacts.show_summary(found)
    return run


@flow(name="bigfs-predict", flow_run_name=name_run("predict {data} by {run}"))
def predict(
    run: RunFolder,
    data: Annotated[Data, Shown],
    out: Annotated[str, said("path of the CSV or .parquet file to write")],
    part: Part = None,
    format: Format = None,
    scores: Scores = False,
    engine: Cluster = CLUSTER,
    timeout: Timeout = DAY,
) -> str:
    """Predict samples with the model of a run, as `bigfs predict` does. Returns the file."""
    options = {"part": part, "format": format, "scores": scores}
    options["memory_limit"] = engine.staging_memory
    with on_cluster(engine):
        found = _call(
            predict_samples, run, _place(data), out, name="predict", limit=timeout, **options
        )
    get_run_logger().info("%s: %s samples %s", found.file, found.rows, found.scores or "")
    return str(found.file)


@flow(name="bigfs-prune", flow_run_name=name_run("prune {folder}"))
def prune(folder: Folder = ".", also: Also = None, keep: Keep = "30d") -> int:
    """Delete what nothing needs and all that is older, as `bigfs prune --yes` does.

    Returns the number of bytes.
    """
    found = _call(storage.find_unused, folder, runs=also or (), older_than=seconds_of(keep))
    for path, _, why in found:
        get_run_logger().info("%s: %s", path, why)
    return int(_call(storage.delete_unused, found))


@flow(name="bigfs-nightly", flow_run_name=name_run("night of {store}"))
def nightly(
    source: NewSamples,
    store: Annotated[str, AfterValidator(require_local), said("path of the staged corpus")],
    out: Annotated[str, said("directory of the results")],
    method: Method = None,
    features: Features = None,
    parameters: Parameters = {},  # noqa: B006
    settings: Settings = SOURCE,
    engine: Cluster = CLUSTER,
    timeout: Timeout = DAY,
    scoring: CurveScoring = SCORING,
    keep: Keep = "30d",
) -> str:
    """Append new samples, select again, score it, and delete results older than `keep`.

    The first night stages the samples. Each later one appends them, unless the corpus has them.
    Returns the run's directory.
    """
    with runs.keeping_failures(out, BaseException):  # as a row of the history
        if manifest.exists(manifest.normalize_uri(store)):
            append(source, store, engine=engine, timeout=timeout)
        else:
            stage(source, store, settings, engine, timeout)
    run(
        *(store, method, features),
        out=out,
        parameters=parameters,
        engine=engine,
        timeout=timeout,
        scoring=scoring,
    )
    prune(str(Path(store).parent), [str(Path(out).parent)], keep)
    return out


@flow(name="bigfs-compare", flow_run_name=name_run("comparison on {source}"))
def compare(
    source: Origin,
    methods: asked.MethodNames = None,
    sizes: asked.Counts = None,
    out: Out = None,
    scoring: asked.ListScoring = Scoring(),  # noqa: B008, it is never changed
    store: Target = None,
    settings: Settings = SOURCE,
    engine: Cluster = CLUSTER,
    overlap: Overlap = "wait",
    fresh: Fresh = False,
    lists: asked.Lists = None,
    selectors: asked.Selectors = None,
    grid: asked.Grid = None,
    subsamples: asked.Subsamples = None,
    constraints: asked.Bounds = None,
    timeout: asked.MethodTime = DAY,
) -> Any:
    """Compare methods on one corpus by their scores, costs and choices.

    A method that fails or takes longer than `timeout` is a row that says so.

    Returns
    -------
    str or State
        Directory of the comparison, or the state `Skipped`.

    See Also
    --------
    bigfs : One method, with a report on its features.
    """
    return _compare(_request(Comparison, locals()))


def _request(model: type[Any], given: dict[str, Any]) -> Any:
    """Return the request of a flow with these parameters."""
    places: dict[str, Any] = {n: _place(given[n]) for n in ("source", "store") if n in given}
    if (settings := given.get("settings")) is not None:
        places["settings"] = settings.model_copy(update={"test": _place(settings.test)})
    return model(**given | places)


def _run(job: Job, *, scored: bool = True) -> Any:
    job = job.with_out()
    if runs.is_done(job, scored=scored):
        get_run_logger().info("%s has this result already", job.folder)
        return job.folder
    job = runs.prepare(job)
    given = {"cluster": on_cluster, "scored": scored, "loaded": "Python, Prefect, Dask"}
    return _unless_busy(runs.run, job, as_task, **given)


def _compare(request: Comparison) -> Any:
    folder = _unless_busy(comparison.compare, request, as_task, cluster=on_cluster)
    if isinstance(folder, str):
        artifacts.show_comparison((Path(folder) / "compare.md").read_text(encoding="utf-8"))
        comparison.require_result(folder)
    return folder


def _unless_busy(work: Callable[..., str], *given: Any, **more: Any) -> Any:
    """Return the folder that the work makes, or the state Skipped where another run works there."""
    try:
        return work(*given, **more)
    except BusyError as error:
        get_run_logger().warning("skipped: %s", error)
        message = "skipped: another run works on the same directory"
        return Completed(name="Skipped", message=message)


@contextlib.contextmanager
def on_cluster(engine: ClusterOptions) -> Iterator[None]:
    """Start or reach the flow's Dask cluster for the block.

    Prefect shows its dashboard and the progress of the work, and with its setting
    PREFECT_LOGGING_EXTRA_LOGGERS=bigfs the log of bigfs.
    """
    log = logging.getLogger("bigfs")
    level = log.level
    log.setLevel(logging.INFO)
    try:
        with engine.start() as client, artifacts.progress():
            if (link := engine.dashboard_link(client)) is not None:
                get_run_logger().info("Dask dashboard: %s", link)
                artifacts.show_dashboard(link)
            yield
    finally:
        log.setLevel(level)
