"""The comparison of `flows.comparison_job` as a Prefect flow, with a task per method.

Annotations are evaluated here, not kept as strings, because `serve` pickles a flow with its types.
"""

from typing import Annotated, Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import State

from flows import artifacts, job, tasks
from flows import parameters as form
from flows.bench import Bench
from flows.comparison_job import Choices, carry_out, plan_comparison, require_result
from flows.options import Engine, Staging
from flows.outcomes import Outcome
from flows.pipeline import SKIPPED, exclusive_on_cluster, skip_if_busy
from flows.serve_limits import require_allowed

Sizes = Annotated[
    list[form.Features], form.form_field("Numbers of features on the curves", min_length=1)
]
Folds = Annotated[
    int | None,
    form.form_field(
        "Folds to score by, for corpora without test samples (default: 5, or a held-out fifth)",
        ge=2,
    ),
]
TestSize = Annotated[
    float | None, form.form_field("Share of the samples to hold out instead", gt=0, lt=1)
]
Subsamples = Annotated[
    int | None,
    form.form_field(
        "Random halves of the training samples to choose from again, for the stability", ge=2
    ),
]
Constrained = Annotated[
    dict[str, Any] | None,
    form.form_field("Features to keep and to forbid in every choice, as lists of names or indices"),
]
AtOnce = Annotated[
    int, form.form_field("Methods that run side by side, as far as memory allows", ge=1)
]
Metrics = Annotated[
    list[str] | None,
    form.form_field("Metrics, the first of which ranks the methods (default: by the target)"),
]


@task(
    name="compare",
    tags=["bigfs"],
    task_run_name="{method}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def run_method(bench: Bench, method: str) -> Outcome:
    """Choose by a method and score its choices."""
    with artifacts.progress(method):
        return bench.run(method)


def run_as_task(bench: Bench, method: str, timeout: float) -> Outcome:
    """Run a method as a task. A `flows.comparison_job.RunMethod`."""
    return run_method.with_options(timeout_seconds=timeout)(bench, method)


@flow(name="compare", flow_run_name="comparison on {source}")
def compare(
    source: form.Source,
    methods: form.Methods,
    sizes: Sizes,
    out: form.Out = None,
    metrics: Metrics = None,
    store: form.StoreOrDefault = None,
    settings: Staging | None = None,
    engine: Engine | None = None,
    overlap: form.Overlap = "wait",
    fresh: form.Fresh = False,
    timeout: form.Timeout = tasks.DAY,
    folds: Folds = None,
    test_size: TestSize = None,
    subsamples: Subsamples = None,
    at_once: AtOnce = 1,
    constraints: Constrained = None,
) -> "str | State[str]":
    """Compare methods on one corpus by their scores, costs and choices.

    Every method chooses each number of features on the same training samples, and a linear model on
    them is scored on the same test samples. Without test samples the methods choose again inside
    folds. `out` gets compare.json, compare.csv, compare.md and report.html. A method that cannot
    learn from the corpus, does not fit in memory or takes longer than `timeout` is a row that says
    so. A later call does again only what failed or what has changed.

    Parameters
    ----------
    source : str
        Path, URL, or name that `bigfs datasets` lists, or a staged store.
    methods : list of str
        Methods, as `bigfs methods` lists them.
    sizes : list of int
        Numbers of features.
    out : str or None, default=None
        Directory of the comparison. None takes a name in ``runs/``.
    metrics : list of str or None, default=None
        Metrics. The first one ranks the methods. None takes those of the kind of target.
    store : str or None, default=None
        Path or URL of the store to make. None takes the name by the source's name and content.
    settings : Staging or None, default=None
        How the source is staged. None takes the defaults of `storage.stage`.
    engine : Engine or None, default=None
        Where the work is done. None starts a process per core on this machine.
    overlap : {"wait", "skip"}, default="wait"
        What to do while another run works on the same store or directory.
    fresh : bool, default=False
        Whether to run methods again whose results exist.
    timeout : float, default=86400
        Seconds that one method may take, to choose and to be scored.
    folds : int or None, default=None
        Number of folds for a corpus without test samples. None takes 5, or one held-out fifth where
        folds are too much work for the heaviest of the methods.
    test_size : float or None, default=None
        Share of the samples to hold out instead of folds.
    subsamples : int or None, default=None
        Number of random halves of the training samples from which each method chooses again, to
        measure how stable its choice is. With None the folds serve, where there are any.
    at_once : int, default=1
        Number of methods that run side by side as far as memory allows. The answers are the same.
        Processor times and memory are then missing, and times are longer than alone.
    constraints : dict or None, default=None
        Features that every method must choose ("keep") and must not choose ("forbid"), as lists of
        indices or names.

    Returns
    -------
    str or State
        Directory of the comparison, or the state `Skipped`.

    Raises
    ------
    ValueError
        No method finished, the corpus has nothing to predict, a size, a method or a metric does
        not exist, both `folds` and `test_size` are given, the corpus has test samples and one of
        them is given, or the constraints do not suit a size.

    See Also
    --------
    flows.pipeline.pipeline : One method, with a report on its features.
    flows.sweep.sweep : Compare parameters.
    """
    settings, engine = settings or Staging(), engine or Engine()
    require_allowed(engine, source, store, out, *settings.files)
    choices = Choices(
        *(methods, sizes, metrics or [], folds, test_size, subsamples, at_once, constraints)
    )
    plan = plan_comparison(source, store, out, settings, choices)
    options = job.StepOptions(fresh, timeout, engine.staging_memory)
    with skip_if_busy(), exclusive_on_cluster(plan.paths, overlap, engine):
        failures = carry_out(plan, options, tasks.do_task, run_as_task)
        create_markdown_artifact((plan.folder / "compare.md").read_text(), key="comparison")
        require_result(plan, failures)
        return str(plan.folder)
    return SKIPPED
