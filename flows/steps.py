"""The steps of a run as plain functions: stage → graph → select → evaluate → report.

Each returns at once where its result is on disk. `bigfs.flows.run` calls them one after another, in
this process or as Prefect tasks. They take the plan of the run and what the step before left, and
return small records or the run. Inside `bigfs.engine.cluster(...)` their work runs on Dask.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bigfs import storage
from bigfs.evaluation.curves import Point
from bigfs.evaluation.quality import class_profile, class_t
from bigfs.evaluation.splits import labeled_rows
from bigfs.flows import reuse
from bigfs.flows.evaluation import choosing, controls, curves, selection
from bigfs.flows.evaluation import plan as evaluation
from bigfs.flows.evaluation.verdict import verdict
from bigfs.flows.messages import repeat_command
from bigfs.flows.plan import Plan
from bigfs.flows.report.provenance import provenance, time_step
from bigfs.flows.staging import stage as stage
from bigfs.flows.use import predict
from bigfs.matrix.class_sums import class_sizes
from bigfs.matrix.statistics import UNEQUAL_SCALES
from bigfs.result import NotConvergedWarning
from bigfs.storage.corpus import Corpus
from bigfs.storage.runs.runs import Run, RunError
from bigfs.types import FloatArray, IntArray

log = logging.getLogger("bigfs.flows")
PROFILED = 300  # chosen features whose classes are in the report
CLASS_HEADER = ["class", "rank", "index", "name", "t"]


# --- graph ----------------------------------------------------------------------------------------


def needs_graph(plan: Plan) -> bool:
    """Return whether a run uses the graph next to the store.

    That graph is of all features. With forbidden ones the method makes its own, and `graph` names
    one that the user has.
    """
    is_taken, given = selection.get_method(plan.method).graph, plan.job.parameters
    return is_taken and not given.get("forbid") and not given.get("graph")


def graph(plan: Plan) -> dict[str, Any]:
    """Make the kNN graph of the training samples, unless it lies next to the store.

    Returns the record of the step.
    """
    with time_step("graph") as record:
        job, corpus = plan.job, plan.corpus
        # the graph does not depend on the number of features
        selector = selection.make_selector(plan.method, 1, job.parameters)
        selection.require_target(corpus, plan.method)
        made = storage.graph(
            selection.training_part(corpus), selector.n_neighbors, metric=selector.metric
        )
        record |= {"graph": made.uri, "info": made.info, "reused": not made.made}
    if not made.made:
        log.info("graph: reused the one next to the store")
    return record


# --- select ---------------------------------------------------------------------------------------


def select(plan: Plan, earlier: Sequence[dict[str, Any]] = (), held: Run | None = None) -> Run:
    """Select features from the training samples, unless the run has them.

    Where their number is "auto", folds of the training samples choose it first. The modes
    "percentile", "fpr", "fdr" and "fwe" choose it by p-values. `earlier` holds the records of the
    earlier steps, and `held` is the result of the same key on disk. Returns the run, which stays
    unfinished until `report`.
    """
    job = plan.job
    if held is not None and reuse.is_selected(held):
        _log_reuse("select")
        return held
    corpus, method, m = plan.corpus, plan.method, plan.features
    parameters = job.question["parameters"]
    train = selection.training_part(corpus)
    samples = train.X, train.y, selection.samples_of(train)
    selector = selection.selector_for(corpus, method, m, parameters)
    found = (
        selection.scale_hint(corpus, train),
        selection.weight_hint(corpus, selector, method),
        selection.in_place_hint(corpus, selector, method),
        selection.shape_hint(selector),
    )
    hints = [hint for hint in found if hint is not None]
    request = {"store": corpus.uri, **job.question}
    run = Run.begin(job.folder, request, plan.key)
    checkpoint = run.checkpoint()
    figures: dict[str, Any] = {"corpus": job.corpus, "content": corpus.spec["content"]}
    if job.features is None:
        figures["n_features"] = m
    if isinstance(corpus, Corpus) and (decided := corpus.manifest.source.get("decided")):
        figures["decided"] = decided  # of the source, which rules what `predict` reads
    with contextlib.ExitStack() as failed, warnings.catch_warnings(record=True) as warned:
        failed.callback(run.abandon)
        warnings.simplefilter("always", NotConvergedWarning)
        with time_step("select") as record:
            if m == selection.AUTO:
                choice = choosing.choose_number(
                    corpus,
                    train.X,
                    train.y,
                    method,
                    parameters,
                    lambda *fold: run.checkpoint("number", *fold),
                    job.metric,
                    samples[2],
                )
                m, figures["size_choice"] = choice.n_features, choice._asdict()
            chooser = choosing.Chooser(corpus, method, m, parameters, *samples)
            selector = chooser.selector
            made = next((step["graph"] for step in earlier if "graph" in step), None)
            if made is not None:
                selector.set_params(graph=storage.open_graph(made).neighbors())
            if (given := selection.given_graph(job.parameters)) is not None:
                selector.set_params(graph=train.obsp(given))
            chooser.best(checkpoint)
            if m in selection.SIGNIFICANCE:
                m = figures["n_features"] = len(selector.selected_)
                if not m:
                    raise ValueError(
                        f"{method} accepts no feature by {job.features}: the least p-value is "
                        f"{selector.pvalues_.min():.3g}; raise --set param=, or give a number of "
                        f"features"
                    )
        record["values"] = train.X.nnz
        assert isinstance(m, int)
        figures |= choosing.choice_of(selector)
        with run.transaction():
            _write_selection(run, selector, method, m, corpus, train)
            run.update_metadata(
                **figures,
                stages=[*earlier, record],
                status=str(selector.result_.status),
                converged=selector.result_.converged,
                history=selector.result_.history,
                stats=selector.result_.stats,
                resumed=checkpoint.resumed,
                hints=[*hints, *(str(w.message) for w in warned)],
                **provenance(),
            )
        failed.pop_all()  # of a selection that is whole nothing is deleted
    for hint in hints:
        warnings.warn(hint, UserWarning, stacklevel=2)
    for loop, step in checkpoint.resumed.items():
        log.info("select: %s resumed from step %d of an earlier attempt", loop, step)
    return run


def _write_selection(
    run: Run, selector: Any, method: str, features: int, corpus: Any, train: Any
) -> None:
    """Write the scores, the chosen features, and the chosen features of each class."""
    scores = getattr(selector, selection.get_method(method).scores)
    if hasattr(selector, "columns_"):
        run.write_arrays("columns.npz", selector.columns_)
    index = selection.ranking(selector, method, features)
    names = list(corpus.feature_names[index])
    columns: dict[str, Any] = {
        "rank": range(1, features + 1),
        "index": index.tolist(),
        "name": names,
        "score": scores[index].tolist(),
    }
    has_classes = corpus.class_names and corpus.spec["target"] != "multioutput"
    if has_classes and labeled_rows(train.y).any():
        sizes, profile = (
            _class_sizes(train.y, len(corpus.class_names)),
            class_profile(train.X, train.y, index, len(corpus.class_names)),
        )
        owners = np.where(sizes > 0, profile, -np.inf).argmax(axis=1)
        columns["class"] = [corpus.class_names[c] for c in owners]
        run.update_metadata(profile=np.round(profile[:PROFILED], 3).tolist())
        rows = _class_rows(profile, sizes, labeled_rows(train.y).sum())
        named = ((corpus.class_names[c], k, index[j], names[j], t) for c, k, j, t in rows)
        run.write_table("classes.csv", CLASS_HEADER, named)
    if hasattr(selector, "pvalues_"):
        columns["p_value"] = selector.pvalues_[index].tolist()
    run.write_table("selected.csv", list(columns), zip(*columns.values(), strict=True))
    run.write_scores(scores)


def _class_sizes(y: Any, n_classes: int) -> IntArray:
    """Return the number of samples of each class, or of each label."""
    if y.ndim == 2:
        return np.asarray(y.astype(bool).sum(axis=0)).ravel()
    return class_sizes(y, n_classes)


def _class_rows(
    profile: FloatArray, sizes: IntArray, n: int
) -> Iterator[tuple[int, int, int, float]]:
    """Yield class, rank, position and t of the features that are larger in a class than outside."""
    for c in np.flatnonzero((sizes > 0) & (sizes < n)):
        t = class_t(profile[:, c], sizes[c] / n) * np.sqrt(n - 2)
        order = np.argsort(-t, kind="stable")
        for rank, j in enumerate(order[t[order] > 0], 1):
            yield int(c), rank, int(j), float(t[j])


# --- evaluate -------------------------------------------------------------------------------------


def evaluate(plan: Plan, run: Run) -> Run:
    """Score the selection, unless the run has these scores. Returns the run."""
    choices = plan.job.scoring.choices()
    if reuse.is_scored(run, choices):
        _log_reuse("evaluate")
    elif run.unfinished:
        score(run, choices, plan.corpus)
    else:
        _rewrite(run, choices, plan.corpus)
    return run


def score(run: Run, choices: Mapping[str, Any], corpus: Any = None) -> list[Point]:
    """Score a run, simple baselines and all features on samples that did not select features.

    These are the test samples of the corpus. Without any, features are selected again inside folds,
    or without one held-out share (`bigfs.flows.evaluation.plan`). A killed evaluation resumes after
    its last finished fold. `bigfs.flows.options.Scoring` has the choices.
    """
    request = run.metadata["parameters"]
    asked: selection.Features = request["features"]
    corpus = corpus_of(run) if corpus is None else corpus
    with time_step("evaluate") as record:
        train = selection.training_part(corpus)
        is_auto = asked == selection.AUTO
        plan = evaluation.make_plan(
            corpus,
            train,
            selection.get_method(request["method"]),
            asked if isinstance(asked, str) else len(run.selected),
            choices,
            selections=choosing.FOLDS + 2 if is_auto else 1,
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
        names = choices.get("baselines")
        if names is None:
            names = evaluation.default_baselines(train, request["method"])
        points: list[Point] = []
        if plan.splits:
            with predict.fitting_model(
                corpus, train, run.selected, logistic=choices.get("classifier") == "logistic"
            ) as fitted:
                points = curves.points(run, corpus, train, plan, names, choices, fitted)
            model = fitted()
    measured = plan.measured.get("metrics", ["accuracy"])
    rows = controls.average_draws(
        [
            {"method": p.method, "n_features": p.n_features, **{k: p.scores[k] for k in measured}}
            for p in points
        ],
        measured,
    )
    header = ["method", "n_features", *measured]
    tested = sum(int(labeled_rows(split.y_test).sum()) for split in plan.splits)
    own = request["method"], len(run.selected)
    with run.transaction():
        if points:
            run.write_arrays("model.npz", model.arrays())
        run.write_table("curves.csv", header, [[row[name] for name in header] for row in rows])
        run.update_metadata(
            curves=rows,
            stages=[*run.metadata["stages"], record],
            scoring=dict(choices),
            measured=plan.measured,
            evaluation=evaluation.describe(plan.measured),
            verdict=verdict(points, *own, measured[0], tested, partial(_advise, run, corpus)),
        )
    return points


def _advise(run: Run, corpus: Any, method: str | None) -> str:
    """Return what to type where another method is ahead, or all features, as None."""
    about = run.metadata
    retype = partial(repeat_command, about.get("command", ""))
    if any(hint.startswith(UNEQUAL_SCALES) for hint in about["hints"]):
        line = retype(scale="standard")
        if all(step["stage"] != "stage" for step in about["stages"]):  # it was given the store
            source = shlex.quote(corpus.spec["source"]["uri"])
            line = f"bigfs stage {source} STORE --scale standard"
        return f"the units of the columns differ, so standardize them: {line}"
    if method is not None:
        return retype(method=method)
    is_given = isinstance(about["parameters"]["features"], int | None)
    return f"let folds choose the number: {retype(features='auto')}" if is_given else ""


def evaluate_again(path: str, choices: Mapping[str, Any]) -> Run:
    """Write curves, figures and report of a finished run anew, all of them or none."""
    run = Run.open(path)
    _rewrite(run, choices, corpus_of(run))
    return run


def _rewrite(run: Run, choices: Mapping[str, Any], corpus: Any) -> None:
    with run.transaction():
        score(run, choices, corpus)
        write_page(run, corpus)
    run.finish()


def corpus_of(run: Run) -> Any:
    """Open the store of a run, unless it has changed since the run selected from it."""
    corpus = storage.open(run.store)
    if run.metadata.get("content") not in (None, corpus.spec["content"]):
        raise RunError(
            f"{run.store} has changed since {run.final} selected from it: `bigfs run` or `bigfs "
            f"select` selects again"
        )
    return corpus


# --- report ---------------------------------------------------------------------------------------


def report(plan: Plan, run: Run) -> Run:
    """Write the report and finish the run, unless it is. Returns it."""
    if reuse.is_reported(run):
        _log_reuse("report")
    else:
        with run.transaction():
            write_page(run, plan.corpus)
        run.finish()
    return run


def write_page(run: Run, corpus: Any = None) -> None:
    """Write the report of a run into its folder."""
    from bigfs.flows.report import page  # loads matplotlib, of the extra `flows`

    page.write_report(run, page.corpus_facts(corpus_of(run) if corpus is None else corpus))


def _log_reuse(step: str) -> None:
    log.info("%s: reused the result of an earlier run", step)
