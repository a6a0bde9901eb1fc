"""The stages of the main job as plain functions: stage → graph → select → evaluate → report.

The command line calls them as they are; `flows.pipeline` calls the same ones as Prefect tasks.
They take and give URIs, paths and numbers, never arrays. Inside `bigfs.blocks.cluster(...)` their
work goes to Dask.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import storage
from bigfs import blocks
from bigfs.evaluate import Point, Split, accuracy_curves, class_profile, mean_curves, stratified_folds
from bigfs.result import NotConverged, observed
from bigfs.selectors import METHODS
from storage.runs import Run

BASELINES = ("anova", "fisher")
SHARES = (0.1, 0.2, 0.5, 1.0)  # of the features asked for: the points of an accuracy curve


def method_named(name: str) -> Any:
    if name not in METHODS:
        raise ValueError(f"there is no method {name!r}; the methods are {', '.join(METHODS)}")
    return METHODS[name]


@contextlib.contextmanager
def timed(run: Run, stage: str, **facts: Any) -> Iterator[dict[str, Any]]:
    """Time the block and note it, with every process's peak memory, among the run's stages."""
    began = time.perf_counter()
    yield facts
    facts |= {"stage": stage, "seconds": time.perf_counter() - began, "peak_memory": blocks.peak_memory()}
    run.note(stages=[*run.about.get("stages", []), facts])


def training_part(corpus: Any) -> Any:
    """What a method may see: the train half where there is one, else everything."""
    return corpus if corpus.split is None else corpus.part("train")


def check_request(corpus: Any, method: str, features: int) -> None:
    """Refuse before any work what can't be done with this corpus."""
    method_named(method)
    d = corpus.X.shape[1]
    if features > d:
        raise ValueError(f"{features} features were asked for and {corpus.uri} has only {d}: ask for {d} or fewer")


def select(
    store: str, out: str | Path, *, method: str, features: int, parameters: dict[str, Any] | None = None, graph: str | None = None
) -> Run:
    """Run a method on a store's training part; the run's directory is begun and still partial."""
    corpus = storage.open(store)
    check_request(corpus, method, features)
    train = training_part(corpus)
    asked = {"store": corpus.uri, "method": method, "features": features, "parameters": parameters or {}}
    run = Run.begin(out, asked)
    with abandoned_on_error(run), timed(run, "select"):
        selector = method_named(method).make(n_features_to_select=features, **(parameters or {}))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NotConverged)
            with observed(checkpoint=run.checkpoint(asked, corpus.spec["fingerprint"])):
                selector.fit(train.X, train.y)
        _write_selection(run, selector, corpus)
    run.note(
        status=str(selector.result_.status),
        converged=selector.result_.converged,
        history=selector.result_.history,
        stats=selector.result_.stats,
        hints=[str(w.message) for w in caught],
        versions={name: version(name) for name in ("bigfs", "dask", "numpy", "scipy", "scikit-learn", "zarr")},
    )
    return run


@contextlib.contextmanager
def abandoned_on_error(run: Run) -> Iterator[None]:
    """A run that fails leaves nothing behind but checkpoints that the next try can use."""
    try:
        yield
    except BaseException:
        run.abandon()
        raise


def _write_selection(run: Run, selector: Any, corpus: Any) -> None:
    index = selector.selected_
    names = corpus.feature_names[index]
    rows = zip(range(1, len(index) + 1), index.tolist(), names, selector.scores_[index].tolist(), strict=True)
    run.write_table("selected.csv", ["rank", "index", "name", "score"], rows)
    run.write_scores(selector.scores_)


def evaluate(run: Run, *, baselines: Sequence[str] = BASELINES, folds: int = 5) -> list[Point]:
    """Accuracy of a linear SVM on the selected features, on the baselines' and on all of them.

    On the corpus' own test half; where there is none, on stratified folds (the selection then saw
    all the samples, and the report says so).
    """
    with abandoned_on_error(run), timed(run, "evaluate"):
        corpus = storage.open(run.about["parameters"]["store"])
        if corpus.y is None or len(np.unique(corpus.y[corpus.y >= 0])) < 2:
            run.note(curves=[], evaluation="no labels: nothing to predict")
            return []
        train = training_part(corpus)
        m = len(run.selected)
        rankings = {run.about["parameters"]["method"]: run.selected}
        for name in baselines:
            if name not in rankings:
                rankings[name] = method_named(name).make(n_features_to_select=m).fit(train.X, train.y).selected_
        counts = sorted({max(1, round(share * m)) for share in SHARES})
        sets = {name: {k: ranking[:k] for k in counts} for name, ranking in rankings.items()}
        if corpus.split is not None:
            test = corpus.part("test")
            points = accuracy_curves(Split(train.X, train.y, test.X, test.y), sets, label="evaluating")
            how = f"linear SVM, trained on the {train.X.shape[0]:,} training documents, tested on {test.X.shape[0]:,} held out"
        else:
            splits = stratified_folds(corpus.X, corpus.y, folds)
            points = mean_curves([accuracy_curves(split, sets, label="evaluating") for split in splits])
            how = f"linear SVM, mean of {len(splits)} stratified folds; the features were chosen on all samples, so the level is optimistic"
        run.write_table("curves.csv", ["method", "n_features", "accuracy"], points)
        run.note(curves=[p._asdict() for p in points], evaluation=how, profile=_profile(run, corpus, train))
    return points


def _profile(run: Run, corpus: Any, train: Any, top: int = 300) -> list[list[float]]:
    """Of the best features, how each class's mean stands out: what the report's term table shows."""
    index = run.selected[:top]
    return np.round(class_profile(train.X, train.y, index, len(corpus.class_names)), 3).tolist()


def transform(run: str | Path, store: str, out: str | Path) -> Path:
    """Write the selected columns of a store, in the order of their rank, as a scipy.sparse .npz with their names."""
    import scipy.sparse as sp

    done, corpus = Run.open(run), storage.open(store)
    index = done.selected
    names = [row["name"] for row in done.read_table("selected.csv")]
    if index.max() >= corpus.X.shape[1] or list(corpus.feature_names[index]) != names:
        raise ValueError(f"{store} does not have the features that {run} selected: stage it with the same vocabulary")
    out = Path(out).with_suffix(".npz")
    part = out.with_name(out.name + ".part.npz")
    sp.save_npz(part, sp.csr_matrix(corpus.X.columns(index)))
    part.replace(out)
    return out
