"""The stages of the main job as plain functions: stage → graph → select → evaluate → report.

`flows.steps` calls them for a job, unless their results exist. They take and return URIs, paths and
numbers, never arrays. Inside `bigfs.engine.cluster(...)` their work runs on Dask.
"""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import storage
from bigfs import engine
from bigfs.evaluation.curves import Point
from bigfs.evaluation.quality import class_profile
from bigfs.result import NotConverged, observed
from bigfs.selectors.registry import canonical_name
from flows.evaluation import auto, curves, selection
from flows.evaluation import plan as evaluation
from flows.report.summary import provenance
from flows.reuse import source_hash
from flows.use import predict
from storage.runs.runs import Run
from storage.write_back import write_var

log = logging.getLogger("bigfs.flows")


@contextlib.contextmanager
def time_stage(stage: str) -> Iterator[dict[str, Any]]:
    """Record the time of the block and the peak memory of each process."""
    record: dict[str, Any] = {"stage": stage}
    began = time.perf_counter()
    yield record
    record |= {"seconds": time.perf_counter() - began, "peak_memory": process_memory()}
    log.info("%s: %.1f s", stage, record["seconds"])


def process_memory() -> dict[str, int]:
    """Return the resident bytes of the processes.

    They are the peaks of this process and the workers, and the current bytes of Prefect's server.
    """
    peaks = engine.peak_memory()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "flows.serving" in child.cmdline():
                peaks["prefect server"] = child.memory_info().rss
    return peaks


def process_age() -> float:
    """Return the seconds since this process began.

    psutil adds its start to the time of the boot, which Linux rounds and keeps where later
    corrections of the clock moved it.
    """
    process = psutil.Process()
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return time.time() - process.create_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - (process.create_time() - psutil.boot_time())


def stage(
    source: str, store: str | None = None, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Stage a source, or reuse an existing store of the same content and settings."""
    with time_stage("stage") as record:
        existing = storage.staged(source, store, **(settings or {}))
        record |= {
            "store": existing or storage.stage(source, store, **(settings or {})),
            "reused": existing is not None,
        }
    return record


def build_graph(
    store: str, method: str, parameters: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Compute and store the kNN graph of the training samples, if the method uses one.

    The graph beside a store is of all its features. With forbidden ones the method makes its own.
    """
    if not selection.get_method(method).graph or (parameters or {}).get("forbid"):
        return None
    with time_stage("graph") as record:
        corpus = storage.open(store)
        # the graph does not depend on the number of features
        selector = selection.make_selector(method, 1, parameters or {})
        selection.require_target(corpus, method)
        graph = storage.graph(
            selection.training_part(corpus), selector.n_neighbors, metric=selector.metric
        )
        record |= {"graph": graph.uri, "info": graph.info, "reused": not graph.made}
    return record


def select(
    store: str,
    out: str | Path,
    *,
    method: str,
    features: selection.Features,
    parameters: dict[str, Any] | None = None,
    earlier: Sequence[dict[str, Any]] = (),
    metric: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> Run:
    """Run a method on the training samples of a store. The run stays partial until `finish`.

    Where `features` is "auto", folds of the training samples choose their number first, by
    `metric`. The modes "percentile", "fpr", "fdr" and "fwe" choose it by p-values. `earlier` holds
    the records of the earlier stages, for the report. run.json gets the entries of `about` too.
    """
    metric = metric if features == selection.AUTO else None
    corpus, method = storage.open(store), canonical_name(method)
    selector = selection.selector_for(corpus, method, features, parameters or {})
    train = selection.training_part(corpus)
    hint = selection.scale_hint(corpus, train)
    request = {
        "store": corpus.uri,
        "method": method,
        "features": features,
        "parameters": parameters or {},
        **({} if metric is None else {"metric": metric}),
    }
    run = Run.begin(out, request)
    identity = request, corpus.spec["fingerprint"], source_hash()
    checkpoint = run.checkpoint(*identity)
    with abandon_on_error(run), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", NotConverged)
        with time_stage("select") as record:
            figures: dict[str, Any] = {}
            m = features if isinstance(features, int) else 0
            if features == selection.AUTO:
                choice = auto.choose_number(
                    corpus,
                    train.X,
                    train.y,
                    method,
                    parameters or {},
                    lambda *fold: run.checkpoint(*identity, "number", *fold),
                    metric,
                )
                m, figures = choice.n_features, {"size_choice": choice._asdict()}
                selector = selection.selector_for(corpus, method, m, parameters or {})
            graph = next((stage["graph"] for stage in earlier if "graph" in stage), None)
            if graph is not None:
                selector.set_params(graph=storage.open_graph(graph).neighbors())
            with observed(checkpoint=checkpoint):
                selector.fit(*selection.usable(selector, method, train.X, train.y))
            if features in selection.SIGNIFICANCE:
                m = _count_significant(selector, method, features)
                figures = {"n_features": m}
        with run.transaction():
            _write_selection(run, selector, method, m, corpus)
            run.update_metadata(
                **(about or {}),
                **figures,
                stages=[*earlier, record],
                status=str(selector.result_.status),
                converged=selector.result_.converged,
                history=selector.result_.history,
                stats=selector.result_.stats,
                resumed=checkpoint.resumed,
                hints=[*filter(None, [hint]), *(str(w.message) for w in warned)],
                **provenance(),
            )
    if hint is not None:
        warnings.warn(hint, UserWarning, stacklevel=2)
    return run


def write_into(run: Run, file: str | Path, *, highly_variable: bool = False) -> None:
    """Write the selection of a run into an AnnData file."""
    request = run.metadata["parameters"]
    about = {
        "method": request["method"],
        "n_features": len(run.selected),
        "parameters": request["parameters"],
        "status": run.metadata["status"],
        "version": version("bigfs"),
    }
    write_var(file, run.scores, run.selected, about, highly_variable=highly_variable)


@contextlib.contextmanager
def abandon_on_error(run: Run) -> Iterator[None]:
    """Remove a run that fails, except for the checkpoints that the next attempt can use."""
    with contextlib.ExitStack() as stack:
        stack.callback(run.abandon)
        yield
        stack.pop_all()


def _count_significant(selector: Any, method: str, mode: selection.Features) -> int:
    """Return the number of features that a mode accepts, or refuse a choice of none."""
    if not len(selector.selected_):
        raise ValueError(
            f"{method} accepts no feature by {mode}: the least p-value is "
            f"{selector.pvalues_.min():.3g}; raise --set param=, or give a number of features"
        )
    return len(selector.selected_)


def _write_selection(run: Run, selector: Any, method: str, features: int, corpus: Any) -> None:
    scores, index = (
        getattr(selector, selection.get_method(method).scores),
        selection.ranking(selector, method, features),
    )
    rows = zip(
        range(1, features + 1),
        index.tolist(),
        corpus.feature_names[index],
        scores[index].tolist(),
        strict=True,
    )
    run.write_table("selected.csv", ["rank", "index", "name", "score"], rows)
    run.write_scores(scores)


def evaluate(
    run: Run,
    *,
    baselines: Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    sizes: Sequence[int] | None = None,
    folds: int | None = None,
    test_size: float | None = None,
) -> list[Point]:
    """Score a run, simple baselines and all features on samples that did not select features.

    These are the test samples of the corpus. Without any, features are selected again inside folds,
    or without one held-out share (`flows.evaluation.plan`). A killed evaluation resumes after its
    last finished fold.
    """
    with abandon_on_error(run), time_stage("evaluate") as record:
        corpus = storage.open(run.metadata["parameters"]["store"])
        train, request = selection.training_part(corpus), run.metadata["parameters"]
        asked: selection.Features = request["features"]
        is_auto = asked == selection.AUTO
        evaluation.require_choices(
            corpus,
            asked if isinstance(asked, str) else len(run.selected),
            metrics=metrics,
            sizes=sizes,
            baselines=baselines,
            folds=folds,
            test_size=test_size,
        )
        plan = evaluation.make_plan(
            corpus,
            train,
            selection.get_method(request["method"]),
            folds,
            metrics,
            test_size=test_size,
            selections=auto.FOLDS + 2 if is_auto else 1,
        )
        if is_auto and plan.splits:
            choice = run.metadata["size_choice"]
            plan.measured["auto"] = len(choice["scores"][0])
            if "metric" in request:
                plan.measured["auto_metric"] = request["metric"]
            is_largest = choice["n_features"] == choice["sizes"][-1] < train.X.shape[1]
            plan.measured["auto_is_largest"] = is_largest
        if asked in selection.SIGNIFICANCE:
            plan.measured["mode"] = asked
        names = (
            evaluation.default_baselines(train, request["method"])
            if baselines is None
            else tuple(baselines)
        )
        points: list[Point] = []
        if plan.splits:
            with predict.fitting_model(corpus, train, run.selected) as fitted:
                points = curves.points(
                    run, corpus, train, plan, names, sizes, (folds, test_size), fitted
                )
            model = fitted()
        figures: dict[str, Any] = {
            "measured": plan.measured,
            "evaluation": evaluation.describe(plan.measured, names),
        }
        figures["profile"] = _profile(run, corpus) if points and corpus.class_names else []
    measured = plan.measured.get("metrics", ["accuracy"])
    rows = [
        {"method": p.method, "n_features": p.n_features, **{key: p.scores[key] for key in measured}}
        for p in points
    ]
    header = ["method", "n_features", *measured]
    with abandon_on_error(run), run.transaction():
        if points:
            run.write_model(model)
        run.write_table("curves.csv", header, [list(row.values()) for row in rows])
        run.update_metadata(
            curves=rows,
            stages=[*run.metadata["stages"], record],
            scoring=scoring_choices(metrics, sizes, baselines, folds, test_size),
            **figures,
        )
    return points


def scoring_choices(
    metrics: Sequence[str],
    sizes: Sequence[int] | None,
    baselines: Sequence[str] | None,
    folds: int | None,
    test_size: float | None,
) -> dict[str, Any]:
    """Return what was chosen, in the form of `flows.options.Scoring.choices`."""
    lists = {"metrics": metrics or None, "sizes": sizes, "baselines": baselines}
    numbers = {"folds": folds, "test_size": test_size}
    return {name: list(value) for name, value in lists.items() if value is not None} | {
        name: value for name, value in numbers.items() if value is not None
    }


def finish(run: Run) -> Path:
    """Write the report and give the run its name. Returns the run's directory."""
    report(run)
    return run.finish()


def report(run: Run) -> None:
    """Write the report of a run into its folder."""
    from flows.report.page import (  # loads matplotlib, of the extra `flows`
        corpus_facts,
        write_report,
    )

    with abandon_on_error(run):
        write_report(run, corpus_facts(storage.open(run.metadata["parameters"]["store"])))


def evaluate_again(path: str, scoring: dict[str, Any] | None = None) -> Path:
    """Write curves, figures and report of a finished run anew, all of them or none."""
    run = Run.open(path)
    with run.transaction():
        evaluate(run, **(scoring or {}))
        report(run)
    return run.finish()


def _profile(run: Run, corpus: Any, top: int = 300) -> list[list[float]]:
    """Return how far the mean of each class stands out in the best features, for the report."""
    train, index = selection.training_part(corpus), run.selected[:top]
    return np.round(class_profile(train.X, train.y, index, len(corpus.class_names)), 3).tolist()
