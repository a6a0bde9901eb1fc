"""A comparison: several methods on the same samples of one corpus, at the same numbers of features.

The corpus is staged once, and its graph is made once. A method that fails or is late is a row with
the reason, and the others go on.
"""

import json
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import State

from bigfs import engine as work
from bigfs.coding.dictionary import NoSpams
from bigfs.engine import ClusterLost
from bigfs.metrics import METRICS
from bigfs.result import ALL
from bigfs.synonyms import canonical_name
from flows import artifacts, evaluation, job, tasks
from flows import parameters as form
from flows.bench import Bench
from flows.comparison_report import write_comparison
from flows.options import Engine, Staging
from flows.outcomes import Outcome
from flows.pipeline import (
    SKIPPED,
    exclusive_on_cluster,
    skip_if_busy,
)
from flows.report import corpus_facts
from flows.reuse import source_name
from flows.selection import get_method
from flows.serve_limits import require_allowed
from flows.standings import FORMAT, csv_rows, make_standings, markdown, require_folder
from storage import sheets
from storage.checkpoints import plain
from storage.format import manifest
from storage.replacing import replacing, writing

# errors that a row tells; any other one ends the comparison
REFUSALS = (ValueError, MemoryError, ClusterLost, TimeoutError, NoSpams)

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

    Returns
    -------
    str or State
        Directory of the comparison, or the state `Skipped`.

    Raises
    ------
    ValueError
        No method finished, the corpus has nothing to predict, a size, a method or a metric does
        not exist, both `folds` and `test_size` are given, or the corpus has test samples and one of
        them is given.

    See Also
    --------
    flows.pipeline.pipeline : One method, with a report on its features.
    flows.sweep.sweep : Compare parameters.
    """
    settings, engine = settings or Staging(), engine or Engine()
    require_allowed(engine, source, store, out, *settings.files)
    folder = Path(out or f"runs/{source_name(source)}-comparison")
    names = require_methods(methods)
    counts, metrics = sorted(set(sizes)), metrics or []
    require_metric_names(metrics)
    if folds is not None and test_size is not None:
        raise ValueError("folds and test_size exclude one another: give one of them")
    require_folder(folder)
    options = job.StepOptions(fresh, timeout, engine.staging_memory)
    is_store = manifest.exists(manifest.absolute(source))
    store_plan = None if is_store else job.plan_store(source, store, settings)
    uri = source if store_plan is None else store_plan.uri
    with skip_if_busy(), exclusive_on_cluster([uri, str(folder)], overlap, engine):
        began = time.perf_counter()
        if store_plan is not None:
            job.stage_source(tasks.do_task, store_plan, source, settings, options)
        bench = Bench(
            uri,
            folder,
            names,
            counts,
            metrics,
            folds=folds,
            test_size=test_size,
            subsamples=subsamples or 0,
        )
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        outcomes, failures, reused = run_methods(bench, names, options)
        comparison: dict[str, Any] = {
            "format": FORMAT,
            "corpus": facts_of(bench.corpus),
            "evaluation": evaluation.describe(bench.measured, tuple(names)),
            "measured": bench.measured,
            **make_standings(bench, outcomes, failures),
            "seconds": time.perf_counter() - began,
            "graph_seconds": bench.graph_seconds,
            "reused": reused,
            "versions": {
                name: version(name) for name in ("bigfs", "dask", "numpy", "scipy", "scikit-learn")
            },
        }
        write_files(folder, comparison)
        create_markdown_artifact((folder / "compare.md").read_text(), key="comparison")
        if len(failures) == len(names):
            raise ValueError(
                "no method finished: "
                + "; ".join(f"{name}: {reason}" for name, reason in failures.items())
            )
        return str(folder)
    return SKIPPED


def run_methods(
    bench: Bench, names: list[str], options: job.StepOptions
) -> tuple[list[Outcome], dict[str, str], list[str]]:
    """Run the methods one after another, and a model on all features where it fits in memory.

    Returns the outcomes, the reasons of those that failed, and the names of those whose earlier
    results were taken.
    """
    outcomes, failures, reused = [], {}, []
    everything = [*names, ALL] if bench.can_take_all() else names
    for done, name in enumerate(everything):
        work.show_progress("methods", done, len(everything))
        work.show_progress(name, 0, 1)
        found = None if options.fresh else bench.find(name)
        if found is not None:
            outcomes.append(found)
            reused.append(name)
        else:
            limited = run_method.with_options(timeout_seconds=options.timeout)
            try:
                outcomes.append(limited(bench, name))
            except REFUSALS as error:
                failures[name] = reason(error, options.timeout)
        work.show_progress(name, 1, 1)
    work.show_progress("methods", len(everything), len(everything))
    failures.pop(ALL, None)  # a line of the picture that is not there
    return outcomes, failures, reused


def reason(error: BaseException, timeout: float) -> str:
    """Return why a method has no result, in one line."""
    if isinstance(error, TimeoutError):
        return f"it took longer than {timeout:g} s, and goes on from its last step when repeated"
    return " ".join(str(error).split()) or type(error).__name__


# --- refused before any work ----------------------------------------------------------------------


def require_methods(methods: list[str]) -> list[str]:
    """Return the names of the methods, each once.

    Raises
    ------
    ValueError
        A method does not exist.
    """
    for method in methods:
        get_method(method)
    return list(dict.fromkeys(map(canonical_name, methods)))


def require_metric_names(metrics: list[str]) -> None:
    """Refuse metrics that no kind of target has."""
    known = list(dict.fromkeys(name for names in METRICS.values() for name in names))
    if unknown := [name for name in metrics if name not in known]:
        raise ValueError(f"unknown metric {unknown[0]!r}; the metrics are {', '.join(known)}")


# --- files ----------------------------------------------------------------------------------------


def facts_of(corpus: Any) -> dict[str, Any]:
    """Return the facts about a corpus that the files of a comparison tell."""
    facts = corpus_facts(corpus)
    kept = {name: facts[name] for name in ("source", "store", "n", "d", "nnz", "split")}
    return kept | {"name": source_name(facts["source"])}


def write_files(folder: Path, comparison: Mapping[str, Any]) -> None:
    """Write compare.csv, compare.md, report.html and compare.json, each whole or not at all."""
    about = plain(dict(comparison))
    header, rows = csv_rows(about)
    title = f"Feature selection on {about['corpus']['name']}"
    with replacing(folder / "compare.csv") as part:
        sheets.write(part, header, rows)
    with replacing(folder / "compare.md") as part:
        part.write_text(markdown(about, title, about["evaluation"]), encoding="utf-8")
    with replacing(folder / "report.html") as part:
        write_comparison(part, about)
    with replacing(folder / "compare.json") as part:
        part.write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
