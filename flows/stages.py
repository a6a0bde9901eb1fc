"""The stages of the main job as plain functions: stage → graph → select → evaluate → report.

The command line calls them directly, and `flows.pipeline` calls them as Prefect tasks. They take
and return URIs, paths and numbers, never arrays. Inside `bigfs.engine.cluster(...)` their work runs
on Dask.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp

import storage
from bigfs import engine
from bigfs.evaluation import Point, class_profile, fits_in_memory, measure
from bigfs.result import NotConverged, observed
from bigfs.selectors.registry import METHODS
from bigfs.splits import Split, labeled_rows, target_kind
from flows import evaluation
from flows.report import corpus_facts, write_report
from storage.ownership import in_the_way
from storage.replacing import replacing
from storage.runs import Run

SHARES = (0.1, 0.2, 0.5, 1.0)  # of the features asked for: the points of an accuracy curve


def method_named(name: str) -> Any:
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; the methods are {', '.join(METHODS)}")
    return METHODS[name]


@contextlib.contextmanager
def timed(stage: str) -> Iterator[dict[str, Any]]:
    """Record the time of the block and the peak memory of each process."""
    record: dict[str, Any] = {"stage": stage}
    began = time.perf_counter()
    yield record
    record |= {"seconds": time.perf_counter() - began, "peak_memory": processes()}


def processes() -> dict[str, int]:
    """Return the peak resident bytes of this process and the workers, and the current bytes of
    Prefect's server.
    """
    peaks = engine.peak_memory()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "flows.server" in child.cmdline():
                peaks["prefect server"] = child.memory_info().rss
    return peaks


def default_out(source: str, method: str, features: int) -> str:
    return str(Path("runs") / f"{source_name(source)}-{method}-{features}")


def source_name(source: str) -> str:
    """Return a file name for a source: the last part of its path without suffixes."""
    name = source.rstrip("/").rsplit("/", 1)[-1]
    for suffix in (".gz", ".bz2", ".xz", ".zip", ".tar", ".tgz", ".svm", ".libsvm", ".txt"):
        name = name.removesuffix(suffix)
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "corpus"


def stage(
    source: str, store: str | None = None, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Stage a source, or reuse an existing store of the same content and settings."""
    with timed("stage") as record:
        found = storage.staged(source, store, **(settings or {}))
        record |= {
            "store": found or storage.stage(source, store, **(settings or {})),
            "reused": found is not None,
        }
    return record


def training_part(corpus: Any) -> Any:
    """Return the training samples, or all samples of a corpus without splits."""
    return corpus if corpus.split is None else corpus.part("train")


def require_parameters(method: str, features: int, parameters: dict[str, Any]) -> None:
    """Check a method, its number of features and its parameters without any data.

    Parameters
    ----------
    method : str
        A name of `bigfs methods`.
    features : int
        The number of features to keep.
    parameters : dict
        Parameters of the method, by scikit-learn's names.

    Raises
    ------
    ValueError
        There is no such method or parameter, a value is out of its range, or two of them contradict
        each other.
    """
    if features < 1:
        raise ValueError(f"the number of features must be at least 1; got {features}")
    estimator(method, features, parameters)._validate_params()


def selector_for(corpus: Any, method: str, features: int, parameters: dict[str, Any]) -> Any:
    """Return the estimator of a method for a corpus. A mismatch is an error before any work."""
    d = corpus.X.shape[1]
    require_target(corpus, method)
    if features > d:
        raise ValueError(
            f"the number of features must be at most {d}, the number in {corpus.uri}; "
            f"got {features}"
        )
    selector = estimator(method, features, parameters)
    if (
        corpus.spec.get("sample_shape")
        and "sample_shape" in selector.get_params()
        and "sample_shape" not in parameters
    ):
        # the pixels of a store are in column-major order
        selector.set_params(sample_shape=tuple(corpus.spec["sample_shape"]), order="F")
    selector._validate_params()
    return selector


def estimator(method: str, features: int, parameters: dict[str, Any]) -> Any:
    """Return the estimator of a method with these parameters."""
    entry = method_named(method)
    selector = entry.make()
    known = selector.get_params()
    if unknown := sorted(set(parameters) - set(known)):
        raise ValueError(
            f"{method} has no parameter {', '.join(unknown)}; it has {', '.join(known)}"
        )
    for name, value in getattr(entry.make, "keywords", {}).items():
        if parameters.get(name, value) != value:
            raise ValueError(
                f"{method} fixes {name}={value!r}: leave {name} out, or choose "
                f"another of `bigfs methods`"
            )
    selector.set_params(**parameters)
    if entry.scores == "scores_":  # else the estimator keeps something other than columns
        if "n_features_to_select" in parameters:
            raise ValueError(
                f"the number of features is already set to {features}: leave out the "
                f"parameter n_features_to_select"
            )
        selector.set_params(n_features_to_select=features)
    return selector


def build_graph(
    store: str, method: str, parameters: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Compute and store the kNN graph of the training samples, if the method uses one."""
    if not method_named(method).graph:
        return None
    with timed("graph") as record:
        corpus = storage.open(store)
        # the graph does not depend on the number of features
        selector = estimator(method, 1, parameters or {})
        require_target(corpus, method)
        graph = storage.graph(training_part(corpus), selector.n_neighbors, metric=selector.metric)
        record |= {"graph": graph.uri, "info": graph.info, "reused": not graph.made}
    return record


def select(
    store: str,
    out: str | Path,
    *,
    method: str,
    features: int,
    parameters: dict[str, Any] | None = None,
    before: Sequence[dict[str, Any]] = (),
) -> Run:
    """Run a method on the training samples of a store. The run stays partial until `finish`.

    `before` holds the records of the earlier stages, for the report.
    """
    corpus = storage.open(store)
    selector = selector_for(corpus, method, features, parameters or {})
    train = training_part(corpus)
    graph = next((stage["graph"] for stage in before if "graph" in stage), None)
    if graph is not None:
        selector.set_params(graph=storage.open_graph(graph).neighbours())
    asked = {
        "store": corpus.uri,
        "method": method,
        "features": features,
        "parameters": parameters or {},
    }
    run = Run.begin(out, asked)
    checkpoint = run.checkpoint(asked, corpus.spec["fingerprint"])
    with abandoned_on_error(run), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NotConverged)
        with timed("select") as record, observed(checkpoint=checkpoint):
            fitted(selector, method, train.X, train.y)
        with run.transaction():
            _write_selection(run, selector, method, features, corpus)
            run.update_metadata(
                stages=[*before, record],
                status=str(selector.result_.status),
                converged=selector.result_.converged,
                history=selector.result_.history,
                stats=selector.result_.stats,
                resumed=checkpoint.resumed,
                hints=[str(w.message) for w in caught],
                versions={
                    name: version(name)
                    for name in ("bigfs", "dask", "numpy", "scipy", "scikit-learn", "zarr")
                },
            )
    return run


@contextlib.contextmanager
def abandoned_on_error(run: Run) -> Iterator[None]:
    """Remove a run that fails, except for the checkpoints that the next attempt can use."""
    with contextlib.ExitStack() as stack:
        stack.callback(run.abandon)
        yield
        stack.pop_all()


def require_target(corpus: Any, method: str) -> None:
    """Check that a method can learn from the kind of target of a corpus."""
    kind, takes = corpus.spec["target"], method_named(method).targets
    if (
        kind in takes
        or not takes
        or (kind is None and not needs_target(method_named(method).make()))
    ):
        return
    there = {
        None: "no labels",
        "class": "one class per sample",
        "multilabel": "several labels per sample",
        "real": "real-valued targets",
    }
    able = [name for name, one in METHODS.items() if kind in one.targets or not one.targets]
    columns = corpus.spec["source"].get("label_columns") if kind is None else None
    advice = f"stage it with label= one of {', '.join(columns)}, or " if columns else ""
    raise ValueError(
        f"{method} cannot learn from {corpus.uri}, which has {there[kind]}: "
        f"{advice}use one of {', '.join(able)}"
    )


def needs_target(selector: Any) -> bool:
    return bool(selector.__sklearn_tags__().target_tags.required)


def fitted(selector: Any, method: str, X: Any, y: Any) -> Any:
    """Fit the selector to the part of the target that its method can learn from.

    An unsupervised method gets no target. Rows without a real-valued target are left out.
    """
    kind, known = target_kind(y), labeled_rows(y)
    if kind not in method_named(method).targets or not (known.any() or needs_target(selector)):
        return selector.fit(X)
    if kind == "real" and not known.all():
        return selector.fit(X.take_rows(known), y[known])
    return selector.fit(X, y)


def ranking(selector: Any, method: str, features: int) -> Any:
    """Return the best features of a fitted selector, best first. Ties go to the lower index."""
    return np.argsort(-getattr(selector, method_named(method).scores), kind="stable")[:features]


def _write_selection(run: Run, selector: Any, method: str, features: int, corpus: Any) -> None:
    scores, index = (
        getattr(selector, method_named(method).scores),
        ranking(selector, method, features),
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
    run: Run, *, baselines: Sequence[str] | None = None, folds: int = evaluation.FOLDS
) -> list[Point]:
    """Score the method of a run, simple baselines and all features on samples that were not used to
    select features.

    These are the test samples of the corpus. Without any, features are selected again inside folds,
    or without one held-out share (`flows.evaluation`). A killed evaluation resumes after its last
    finished fold.

    Parameters
    ----------
    run : Run
        A run with a selection.
    baselines : sequence of str, optional
        Methods to compare with. The default is ANOVA and, if no feature is negative, χ².
    folds : int, default=5
        Number of folds for a corpus without test samples.

    Returns
    -------
    list of Point
        Empty if there is no target to predict.
    """
    with abandoned_on_error(run), timed("evaluate") as record:
        corpus = storage.open(run.metadata["parameters"]["store"])
        train, asked = training_part(corpus), run.metadata["parameters"]
        plan = evaluation.plan_for(corpus, train, method_named(asked["method"]), folds)
        names = evaluation.rivals(train, asked["method"]) if baselines is None else tuple(baselines)
        points = _points(run, corpus, train, plan, names) if plan.splits else []
        figures: dict[str, Any] = {
            "measured": plan.measured,
            "evaluation": evaluation.sentence(plan.measured, names),
        }
        figures["profile"] = _profile(run, corpus) if points and corpus.class_names else []
    curves = [{"method": p.method, "n_features": p.n_features, **p.scores} for p in points]
    header = ["method", "n_features", *plan.measured.get("metrics", ["accuracy"])]
    with abandoned_on_error(run), run.transaction():
        run.write_table("curves.csv", header, [list(point.values()) for point in curves])
        run.update_metadata(curves=curves, stages=[*run.metadata["stages"], record], **figures)
    return points


def _points(
    run: Run, corpus: Any, train: Any, plan: evaluation.Plan, names: Sequence[str]
) -> list[Point]:
    """Return the points of the curves. Sets the number of selections that did not converge in
    `plan.measured`.
    """
    asked, m = run.metadata["parameters"], len(run.selected)
    counts = sorted({max(1, round(share * m)) for share in SHARES})
    with_all = fits_in_memory(train.X)
    identity = [asked, corpus.spec["content"], plan.measured, list(names), with_all]

    def rank(number: int, split: Split) -> dict[str, dict[int, Any]]:
        best = {asked["method"]: run.selected} if plan.measured["how"] == "test half" else {}
        for name in dict.fromkeys([asked["method"], *names]):
            if name not in best:
                parameters = asked["parameters"] if name == asked["method"] else {}
                with observed(checkpoint=run.checkpoint(*identity, number, name)):
                    selector = fitted(
                        selector_for(corpus, name, m, parameters),
                        name,
                        split.X_train,
                        split.y_train,
                    )
                best[name] = ranking(selector, name, m)
        return {name: {k: index[:k] for k in counts} for name, index in best.items()}

    points, plan.measured["not_converged"] = measure(
        plan.splits, rank, with_all=with_all, checkpoint=run.checkpoint(*identity)
    )
    return points


def finish(run: Run) -> Path:
    """Write the report and give the run its name. Returns the run's directory."""
    report(run)
    return run.finish()


def report(run: Run) -> None:
    """Write the report of a run into its folder."""
    with abandoned_on_error(run):
        write_report(run, corpus_facts(storage.open(run.metadata["parameters"]["store"])))


def evaluate_again(path: str) -> Path:
    """Write curves, figures and report of a finished run anew: all of them, or none if one fails.

    Parameters
    ----------
    path : str
        The run's directory.

    Returns
    -------
    Path
        The run's directory.
    """
    run = Run.open(path)
    with run.transaction():
        evaluate(run)
        report(run)
    return run.finish()


def _profile(run: Run, corpus: Any, top: int = 300) -> list[list[float]]:
    """Return how far the mean of each class stands out in the best features, for the report's term
    table.
    """
    train, index = training_part(corpus), run.selected[:top]
    return np.round(class_profile(train.X, train.y, index, len(corpus.class_names)), 3).tolist()


def transform(run: str | Path, store: str, out: str | Path) -> Path:
    """Write the selected columns of a store, in the order of their rank, as a scipy.sparse .npz.

    Parameters
    ----------
    run : str or Path
        A run's directory.
    store : str
        A staged corpus with the features that the run selected.
    out : str or Path
        The file to write; `.npz` is added if missing. An existing file is replaced only if it is
        the .npz of a sparse matrix.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        The store does not have the features of the run, or `out` is another kind of file.
    """
    done, corpus = Run.open(run), storage.open(store)
    out = Path(out) if str(out).endswith(".npz") else Path(f"{out}.npz")
    _require_matrix(out)
    index = done.selected
    names = [row["name"] for row in done.read_table("selected.csv")]
    if index.max() >= corpus.X.shape[1] or list(corpus.feature_names[index]) != names:
        raise ValueError(
            f"{store} does not have the features that {run} selected: stage "
            f"it with the same vocabulary"
        )
    with replacing(out) as part, part.open("wb") as file:
        sp.save_npz(file, sp.csr_matrix(corpus.X.columns(index)))
    return out


def _require_matrix(file: Path) -> None:
    """Check that the file is missing or is the .npz of a sparse matrix."""
    if os.path.lexists(file):
        names: list[str] = []
        with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(file) as archive:
            names = archive.namelist()
        if not {"data.npy", "indices.npy", "indptr.npy", "shape.npy", "format.npy"} <= set(names):
            raise in_the_way(file)
