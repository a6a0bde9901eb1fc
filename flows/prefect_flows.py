"""The flows of Prefect: a run, a comparison, and single steps. All of Prefect is here and in
`bigfs.flows.report.artifacts`.

A task is a plain function of `bigfs.flows.steps`. Prefect caches no result: the disk says what is
done. A flow has the fields of a model as its parameters. They are evaluated here, not kept as
strings, because `serve` pickles a flow with its types.
"""

import contextlib
import inspect
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from prefect import flow, get_run_logger, runtime, task
from prefect.logging.handlers import APILogHandler
from prefect.settings import (
    PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW,
    get_current_settings,
    temporary_settings,
)
from prefect.states import Completed, State
from prefect.tasks import exponential_backoff
from pydantic import Field

from bigfs.flows import run as runs
from bigfs.flows import steps
from bigfs.flows.comparison import compare as comparison
from bigfs.flows.comparison.request import Comparison
from bigfs.flows.job import DAY, Job, Request
from bigfs.flows.options import Engine, RunScoring
from bigfs.flows.report import artifacts
from bigfs.selectors.registry import METHODS
from bigfs.storage.errors import BusyError, may_pass, redacted
from bigfs.storage.runs.runs import lock_run

SKIPPED: State[Any] = Completed(
    name="Skipped", message="skipped: another run works on the same corpus or directory"
)


# --- tasks ----------------------------------------------------------------------------------------


def _is_transient(_task: Any, _run: Any, state: Any) -> bool:
    return may_pass(state.data)


def _make_task(step: Callable[..., Any]) -> Any:
    decorate = task(
        name=step.__name__,
        tags=["bigfs"],
        persist_result=False,
        retries=runs.RETRIES,
        retry_delay_seconds=exponential_backoff(runs.FIRST_WAIT),
        retry_jitter_factor=runs.JITTER,
        retry_condition_fn=_is_transient,
    )
    return decorate(step)


STEPS = (steps.stage, steps.graph, steps.select, steps.evaluate, steps.report)
OTHERS = (steps.evaluate_again, comparison.run_method)
TASKS = {step: _make_task(step) for step in (*STEPS, *OTHERS)}
SHOW = {
    steps.select: artifacts.show_selection,
    steps.evaluate: artifacts.show_curves,
    steps.report: artifacts.show_summary,
}


def as_task(step: Callable[..., Any], request: Any, *arguments: Any) -> Any:
    """Call a step as a task, and show its result. A `bigfs.flows.run.Call`."""
    choices: dict[str, Any] = {}
    if step in STEPS:
        choices["timeout_seconds"] = request.timeout
    if step is steps.select:
        choices["task_run_name"] = f"select {request.features} by {request.method}"
    if step is comparison.run_method:
        choices["task_run_name"] = arguments[-1].replace("{", "{{").replace("}", "}}")
    is_new = step is steps.report and arguments[0].unfinished
    result = TASKS[step].with_options(**choices)(request, *arguments)
    if step in SHOW:
        if "prefect" not in result.metadata:
            result.update_metadata(prefect=_flow_run_info())
        SHOW[step](result)
        if is_new:
            artifacts.tell_change(result)
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


# --- parameters -----------------------------------------------------------------------------------


def fields_of(
    model: type[Request], names: str = "", *, required: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a function the fields of a model as parameters: all, or the named ones."""
    fields, parameters = model.fields(), []
    for name in names.split() or fields:
        field = fields[name]
        is_required = field.is_required() or name in required.split()
        default = inspect.Parameter.empty if is_required else field.get_default()
        annotation: Any = Annotated[(field.annotation, *field.metadata, _form_field(name, field))]
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=default,
                annotation=annotation,
            )
        )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.Signature(parameters)

        def call(*given: Any, **named: Any) -> Any:
            return function(**signature.bind(*given, **named).arguments)

        call.__name__ = call.__qualname__ = function.__name__
        call.__doc__ = function.__doc__
        call.__signature__ = signature  # type: ignore[attr-defined]  # Prefect reads it
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        return call

    return decorate


def named(template: str) -> Callable[[], str]:
    """Return a function that names a flow run by its parameters, without secrets of a URL."""
    return lambda: redacted(template.format(**runtime.flow_run.get_parameters()))


def _form_field(name: str, field: Any) -> Any:
    """Return a field with help text for the form.

    The text is in the schema's extra fields, because Prefect overwrites the description of a
    parameter with the one in the docstring.
    """
    extra: dict[str, Any] = {"description": field.description}
    if name == "method":
        extra["enum"] = list(METHODS)
    return Field(json_schema_extra=extra)


# --- flows ----------------------------------------------------------------------------------------


@flow(name="bigfs", flow_run_name=named("{features} features of {source} by {method}"))
@fields_of(Job)
def bigfs(**given: Any) -> Any:
    """Select features of a corpus and report on them: stage, graph, select, evaluate, report.

    A step whose result exists is not repeated. The parameters are the fields of
    `bigfs.flows.job.Job`.

    Returns
    -------
    str or State
        Directory of the run, or the state `Skipped`.

    See Also
    --------
    compare : Compare methods, numbers of features and parameters.
    """
    return _run(Job(**given))


@flow(name="select", flow_run_name=named("{features} features of {store} by {method}"))
@fields_of(
    Job,
    "store out method features parameters engine overlap fresh timeout scoring",
    required="store out",
)
def select(**given: Any) -> Any:
    """Select features of a staged corpus and write the report, as `bigfs select` does.

    Returns the run's directory.
    """
    return _run(Job(source=given["store"], **given), scored=False)


@flow(name="stage", flow_run_name=named("stage {source}"))
@fields_of(Job, "source store settings engine timeout")
def stage(**given: Any) -> Any:
    """Stage a source as a corpus store. Returns the store's URI."""
    job = Job(**given)
    job = job.model_copy(update={"store": runs.store_of(job)})
    with on_cluster(job.engine):
        return as_task(steps.stage, job)["store"]


@flow(name="evaluate", flow_run_name="evaluate {run}")
def evaluate(
    run: Annotated[str, Field(description="directory of the run")],
    engine: Engine | None = None,
    timeout: Annotated[float, Field(gt=0, description="time limit, in seconds")] = DAY,
    scoring: RunScoring | None = None,
) -> str:
    """Evaluate a run again and rewrite its report, as `bigfs evaluate` does.

    Returns the run's directory.
    """
    engine, choices = engine or Engine(), (scoring or RunScoring()).choices()
    with lock_run(run), on_cluster(engine):
        evaluate_again = TASKS[steps.evaluate_again].with_options(timeout_seconds=timeout)
        found = evaluate_again(run, choices)
        artifacts.show_curves(found)
        artifacts.show_summary(found)
    return run


@flow(name="compare", flow_run_name=named("comparison on {source}"))
@fields_of(Comparison)
def compare(**given: Any) -> Any:
    """Compare methods on one corpus by their scores, costs and choices.

    The parameters are the fields of `bigfs.flows.comparison.request.Comparison`, which says more. A
    method that fails or takes longer than `timeout` is a row that says so.

    Returns
    -------
    str or State
        Directory of the comparison, or the state `Skipped`.

    See Also
    --------
    bigfs : One method, with a report on its features.
    """
    return _compare(Comparison(**given))


def _run(job: Job, *, scored: bool = True) -> Any:
    job = job.with_out()
    if runs.is_done(job, scored=scored):
        get_run_logger().info("%s has this result already", job.folder)
        return job.folder
    job = runs.prepare(job)
    with _skip_if_busy():
        loaded = "Python, Prefect, Dask"
        return runs.run(job, as_task, cluster=on_cluster, scored=scored, loaded=loaded)
    return SKIPPED


def _compare(request: Comparison) -> Any:
    with _skip_if_busy():
        folder = comparison.compare(request, as_task, cluster=on_cluster)
        artifacts.show_comparison((Path(folder) / "compare.md").read_text(encoding="utf-8"))
        comparison.require_result(folder)
        return folder
    return SKIPPED


@contextlib.contextmanager
def _skip_if_busy() -> Iterator[None]:
    """End the block if another run holds a lock and this one does not wait."""
    try:
        yield
    except BusyError as error:
        get_run_logger().warning("skipped: %s", error)


@contextlib.contextmanager
def on_cluster(engine: Engine) -> Iterator[None]:
    """Start or reach the flow's Dask cluster for the block.

    Prefect shows its dashboard, the progress of the work and the log of bigfs.
    """
    with engine.start() as client, _logged(), artifacts.progress():
        if (link := engine.dashboard_link(client)) is not None:
            get_run_logger().info("Dask dashboard: %s", link)
            artifacts.show_dashboard(link)
        yield


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Send the log of bigfs to that of the flow run, and nowhere else."""
    log, handler = logging.getLogger("bigfs"), APILogHandler()
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        with temporary_settings({PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW: "ignore"}):
            yield  # threads of Dask serve no flow
    finally:
        level, log.propagate = before
        log.setLevel(level)
        log.removeHandler(handler)
