"""Many small and odd problems for every method: an answer or one clear refusal, nothing else.

python benchmarks/fuzz_methods.py --problems 20000 --seed 0
python benchmarks/fuzz_methods.py --case 4711            one problem again, with its traceback
"""

from __future__ import annotations

import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import scipy.sparse as sp
import typer
from shared import table
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file
from sklearn.exceptions import DataConversionWarning
from threadpoolctl import threadpool_limits

from bigfs import storage
from bigfs.result import NotConverged
from bigfs.selectors.registry import METHODS

LIMIT = 60.0  # seconds of one problem
CHUNK = 50  # problems a task
STORES = 0.01  # of the problems are fitted from a store too
AGAIN = 0.1  # are fitted again, and from another kind of input
INTERNALS = (
    *("leading minor", "broadcast", "lapack", "singular matrix", "must not contain infs"),
    *("zero-size", "shapes (", "out of bounds", "eigenvalues did"),
)
ADVICE = ("The number of unique classes", "The least populated class")  # scikit-learn's, on y
INFINITE = ("anova", "fisher", "lsdf", "t-score", "f-regression")  # document an infinite score
CODED = ("jgsc", "rjgsc", "gsc")  # features are ranked by atoms
Rng = np.random.Generator


class Case(NamedTuple):
    selector: Any
    X: np.ndarray
    y: Any
    kind: str
    regular: bool  # neither degenerate nor odd: every kind of input has the same answer


class Ended(NamedTuple):
    method: str
    outcome: str  # "solved", "refused" or "failed"
    seconds: float
    said: str


# --- parameters -----------------------------------------------------------------------------------

Draw = Callable[[Rng], Any]


def pick(rng: Rng, *values: Any) -> Any:
    return values[rng.integers(len(values))]


def one_of(*values: Any) -> Draw:
    return lambda rng: pick(rng, *values)


def power(low: float, high: float) -> Draw:
    return lambda rng: float(10 ** rng.uniform(low, high))


def whole(low: int, high: int) -> Draw:
    return lambda rng: int(rng.integers(low, high))


METRIC = {"metric": one_of("cosine", "euclidean")}
GRAPH = {"n_neighbors": whole(1, 8), **METRIC}
BINS = {"n_bins": one_of("auto", 1, 3)}
SPARGE = {
    "gamma": power(-4, 3),
    "n_components": one_of(None, None, None, 1, 2, 3),
    "n_neighbors": whole(1, 6),
    **METRIC,
    "weighting": one_of("uniform", "degree"),
    "beta": power(-2, 2),
    "ranking": one_of("elimination", "weights"),
    "tol": power(-6, -1),
    "max_iter": whole(1, 9),
}
RIDGE = {
    "gamma": power(-6, 2),
    "solver": one_of("auto", "woodbury", "primal", "cg"),
    "tol": power(-4, -1),
    "max_iter": whole(1, 15),
}
CODING = {
    "n_atoms": whole(1, 6),
    "epochs": one_of(1),
    "alpha": lambda rng: pick(rng, 0.0, power(-3, 2)(rng)),
    "lam": power(-3, 2),
    "n_neighbors": whole(1, 6),
    **METRIC,
    "weights": one_of("binary", "heat"),
    "max_iter": whole(1, 8),
}
# what is drawn of a method's parameters; all others have their defaults
DRAWS: dict[str, dict[str, Draw]] = {
    **{f"sparge-{embedding}": SPARGE for embedding in ("lda", "cca", "hsl", "sda", "lpp", "pca")},
    "sparge-lda-cv": {
        "gammas": lambda rng: (power(-3, 0)(rng), power(0, 3)(rng)),
        "cv": whole(2, 4),
        "max_iter": whole(1, 6),
    },
    "srlsr": {**RIDGE, "p": lambda rng: float(rng.uniform(0.2, 1))},
    "rlsr": RIDGE,
    "jhlsr": {
        **(RIDGE | GRAPH),
        "mu": power(-3, 1),
        "lam": power(-4, 1),
        "variant": one_of("joint", "hyper", "graph"),
        "hyperedges": one_of("lasso", "knn", "labels"),
        "degrees": one_of("weighted", "incidence"),
        "mode": one_of("auto", "auto", "unsupervised"),
    },
    **dict.fromkeys(CODED, CODING),
    "smr": {
        "order": one_of("C", "F"),
        "alpha": power(-3, 3),
        "k": whole(1, 5),
        "p": lambda rng: float(rng.uniform(0.2, 2)),
        "gram": one_of("covariance", "samples"),
        "max_iter": whole(1, 8),
    },
    "laplacian": {**GRAPH, "weights": one_of("binary", "heat")},
    "mutual-info": BINS,
    "jmi": BINS,
    "cmim": BINS,
    "mrmr": {**BINS, "scheme": one_of("difference", "quotient")},
    "mrmr-f": {"scheme": one_of("difference", "quotient")},
    "relieff": GRAPH,
    "spec": {**GRAPH, "ranking": one_of("phi1", "phi2", "phi3"), "n_components": one_of(1, 3, 10)},
    "lsdf": {**GRAPH, "gamma": one_of(0.1, 100.0)},
    "sselect": {**GRAPH, "lam": one_of(0.0, 0.5, 1.0)},
    "trace-ratio": GRAPH,
    "trace-ratio-laplacian": GRAPH,
    "trcfs": {**GRAPH, "alpha": one_of(0.5, 0.99)},
    "l1-svm": {"C": one_of("auto", 0.1, 10.0)},
    "l2-svm": {"C": power(-2, 1)},
    "svm-rfe": {"step": one_of(1, 3, 0.3)},
    "multitask-lasso": {"alpha": one_of("auto", 0.01)},
    "mcfs": METRIC,
    "mrsf": METRIC,
    "rfs": {"gamma": power(-2, 1)},
    "jfs": {"gamma": power(-2, 1)},
    "dlsr": {"gamma": one_of("auto", 1.0)},
    "spfs": {"alpha": one_of("auto", 0.01)},
    "jelsr": {"alpha": one_of(0.05, 0.5)},
    "ndfs": {"beta": one_of(0.05, 0.5)},
    "udfs": {"gamma": one_of(0.01, 1.0)},
    "glspfs": {"lam": one_of(0.01, 1.0)},
    "llfs": {"lam": power(-2, 1), "n_neighbors": one_of(3)},
}


def selector(rng: Rng, name: str, d: int) -> Any:
    settings = {key: draw(rng) for key, draw in DRAWS.get(name, {}).items()}
    if name in CODED and rng.random() < 0.7:
        settings["dictionary"] = rng.normal(size=(int(rng.integers(1, 8)), d))
    if name == "smr":
        M = int(pick(rng, *[m for m in range(1, d + 1) if d % m == 0]))
        settings["sample_shape"] = pick(rng, None, (M, d // M))
    if name == "laplacian" and settings["metric"] == "cosine":
        settings["weights"] = pick(rng, settings["weights"], "cosine")
    some = (None, 1, 0.3) if name in CODED else (None, 1, 0.3, d)
    return METHODS[name].make(n_features_to_select=pick(rng, *some), **settings)


# --- data -----------------------------------------------------------------------------------------


def draw_X(rng: Rng, odd: bool, positive: bool) -> np.ndarray:
    n, d = (int(rng.integers(1 if odd else least, 61)) for least in (12, 4))
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < rng.uniform(0.1, 1))
    X = np.abs(X) if positive or rng.random() < 0.5 else X
    if not odd:
        return X
    for change, share in CHANGES.items():
        if rng.random() < share:
            X = change(rng, X)
    return X


def constant_columns(rng: Rng, X: np.ndarray) -> np.ndarray:
    X[:, rng.random(X.shape[1]) < rng.random()] = pick(rng, 0.0, 1.0, 0.1, 1e7 / 3)
    return X


def zero_rows(rng: Rng, X: np.ndarray) -> np.ndarray:
    X[rng.random(len(X)) < rng.random()] = 0
    return X


def not_finite(rng: Rng, X: np.ndarray) -> np.ndarray:
    X[rng.integers(len(X)), rng.integers(X.shape[1])] = pick(rng, np.nan, np.inf, -np.inf)
    return X


def whole_numbers(rng: Rng, X: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.clip(np.nan_to_num(np.round(X * 3)), -100, 100).astype(
            pick(rng, np.int8, np.int16, np.int64, np.bool_)
        )


def single(rng: Rng, X: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return X.astype(np.float32)


CHANGES: dict[Callable[[Rng, np.ndarray], np.ndarray], float] = {
    constant_columns: 0.15,
    lambda rng, X: X[rng.integers(0, max(1, len(X) // 2), len(X))]: 0.15,  # rows repeat
    lambda rng, X: X[:, rng.integers(0, max(1, X.shape[1] // 2), X.shape[1])]: 0.1,
    zero_rows: 0.1,
    lambda rng, X: X[:, :1]: 0.05,  # one feature
    lambda rng, X: X[:3]: 0.05,  # few samples
    lambda rng, X: X * 10.0 ** pick(rng, -300, -100, -20, -6, 6, 20, 100, 300): 0.15,
    lambda rng, X: X * 10.0 ** rng.integers(-12, 13, X.shape[1]): 0.05,  # columns scaled
    lambda rng, X: X * 10.0 ** rng.integers(-12, 13, (len(X), 1)): 0.05,  # rows scaled
    not_finite: 0.03,
    whole_numbers: 0.1,
    single: 0.15,
}


def draw_y(rng: Rng, n: int, odd: bool, name: str) -> Any:
    y = rng.permutation(np.arange(n) % int(rng.integers(2, 5)))
    if name in ("sparge-cca", "sparge-hsl") and rng.random() < 0.4:
        several = (rng.random((n, int(rng.integers(1, 5)))) < 0.4).astype(float)
        return several if name == "sparge-hsl" or rng.random() < 0.5 else rng.normal(size=n)
    if not odd:
        return y
    return pick(
        rng,
        y,
        y - 1,
        np.where(y > 0, 1, -1),
        np.array([f"class {c}" for c in y]),
        (y - 1).astype(str),
        y.astype(float),
        np.where(rng.random(n) < 0.5, y, -1),
        np.zeros(n, dtype=int),
        np.arange(n),
        y > 0,
        np.full(n, -1),
    )


def duplicated(rng: Rng, X: np.ndarray) -> sp.coo_array:
    """X with each entry in two parts."""
    Z = sp.coo_array(X)
    i, j = Z.coords
    first = Z.data // 2 if Z.data.dtype.kind in "iu" else (Z.data / 2).astype(Z.data.dtype)
    with np.errstate(invalid="ignore"):
        rest = Z.data if Z.data.dtype.kind == "b" else Z.data - first
    first = np.zeros_like(rest) if Z.data.dtype.kind == "b" else first
    order = rng.permutation(2 * len(i))
    return sp.coo_array(
        (np.append(first, rest)[order], (np.tile(i, 2)[order], np.tile(j, 2)[order])), shape=X.shape
    )


def csr_with_duplicates(X: np.ndarray) -> sp.csr_array:
    Z = duplicated(np.random.default_rng(0), X)
    i, j = Z.coords
    order = np.argsort(i, kind="stable")
    return sp.csr_array(
        (Z.data[order], j[order], np.searchsorted(i[order], np.arange(len(X) + 1))), shape=X.shape
    )


KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "dense": lambda X: X,
    "csr": sp.csr_array,
    "csc": sp.csc_array,
    "coo with duplicates": lambda X: duplicated(np.random.default_rng(0), X),
    "csr with duplicates": csr_with_duplicates,
    "dask": lambda X: da.from_array(X, chunks=(max(1, len(X) // 2), max(1, X.shape[1] // 2))),
    "dask of csr": lambda X: da.from_array(
        sp.csr_matrix(csr_with_duplicates(X)), chunks=(len(X), X.shape[1]), asarray=False
    ),
}


def draw(case: int) -> tuple[str, Case]:
    rng = np.random.default_rng(case)
    name = pick(rng, *METHODS)
    odd = rng.random() < 0.5
    X = draw_X(rng, odd, positive=name == "chi2" and rng.random() < 0.9)
    made = selector(rng, name, X.shape[1])
    return name, Case(made, X, draw_y(rng, len(X), odd, name), pick(rng, *KINDS), not odd)


# --- one problem ----------------------------------------------------------------------------------


class Wrong(Exception):
    """What a problem shows that no problem may show."""


def fitted(selector: Any, X: Any, y: Any) -> Any:
    """The fitted selector, or its refusal as a string."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = clone(selector).fit(X, y)
        except ValueError as error:
            result = str(error)
            if "\n" in result or any(said in result.lower() for said in INTERNALS):
                raise Wrong(f"unclear refusal: {result}") from error
    for one in warned:
        if str(one.message).startswith(ADVICE):
            continue
        if not issubclass(one.category, NotConverged | DataConversionWarning):
            raise Wrong(
                f"{one.category.__name__}: {one.message} ({Path(one.filename).name}:{one.lineno})"
            )
        if "(gap inf" in str(one.message):
            raise Wrong(str(one.message))
    return result


def examine(name: str, model: Any, d: int) -> None:
    scores = model.scores_
    if np.isnan(scores).any():
        raise Wrong("NaN in scores_")
    if np.isinf(scores).any() and name not in INFINITE:
        raise Wrong("infinite scores_")
    wanted = model._count(len(scores))
    if len(np.unique(model.selected_)) != wanted or model.support_.sum() != wanted:
        raise Wrong(f"{len(np.unique(model.selected_))} features selected, {wanted} asked for")
    if name not in CODED and len(scores) != d:
        raise Wrong(f"{len(scores)} scores for {d} features")


def compare(one: Any, other: Any, what: str, exactly: bool = False) -> None:
    refusals = [said for said in (one, other) if isinstance(said, str)]
    if len(refusals) == 1:
        raise Wrong(f"{what}: one is solved, and the other is refused: {refusals[0]}")
    if refusals:
        return
    scale = np.abs(one.scores_[np.isfinite(one.scores_)]).max(initial=0)
    if exactly and not np.array_equal(one.scores_, other.scores_):
        raise Wrong(f"{what}: other scores")
    if not np.allclose(one.scores_, other.scores_, rtol=1e-4, atol=1e-6 * scale):
        raise Wrong(f"{what}: scores differ by {np.abs(one.scores_ - other.scores_).max():.1e}")


def from_a_store(case: Case) -> None:
    """The same of a store as of its columns in memory."""
    with tempfile.TemporaryDirectory() as folder:
        dump_svmlight_file(case.X, case.y, f"{folder}/x.svm", zero_based=True)
        rows = max(1, len(case.X) // 2)
        uri = storage.stage(f"{folder}/x.svm", f"{folder}/x.zarr", tile_rows=rows)
        corpus = storage.open(uri)
        if corpus.X.shape == case.X.shape:
            memory = corpus.X.columns(np.arange(case.X.shape[1]))
            both = (fitted(case.selector, X, corpus.y) for X in (memory, corpus.X))
            compare(*both, "store")


def again(case: Case, X: Any, model: Any, rng: Rng) -> None:
    """Another fit, other kinds of input and a store say the same, of some problems."""
    if rng.random() < AGAIN:
        compare(model, fitted(case.selector, X, case.y), "again", exactly=True)
        other = pick(rng, *KINDS)
        if case.regular:
            found = fitted(case.selector, KINDS[other](case.X), case.y)
            compare(model, found, f"{case.kind} / {other}")
    of_classes = case.y.ndim == 1 and case.y.dtype.kind == "i"
    if case.regular and of_classes and rng.random() < STORES / 0.5:
        from_a_store(case)


def solve(number: int) -> Ended:
    name, case = draw(number)
    began = time.perf_counter()
    try:
        X, before = KINDS[case.kind](case.X), case.X.copy()
        model = fitted(case.selector, X, case.y)
        seconds = time.perf_counter() - began
        if not isinstance(model, str):
            examine(name, model, case.X.shape[1])
        if not np.array_equal(before, case.X, equal_nan=case.X.dtype.kind == "f"):
            raise Wrong("X was written to")
        if seconds > LIMIT:
            raise Wrong(f"{seconds:.0f} s")
        again(case, X, model, np.random.default_rng([number, 1]))
    except Exception as error:  # any exception but `Wrong` is looked for too
        said = str(error)
        if not isinstance(error, Wrong):
            at = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
        return Ended(name, "failed", time.perf_counter() - began, said)
    refused = isinstance(model, str)
    return Ended(name, "refused" if refused else "solved", seconds, model if refused else "")


def solve_some(numbers: range) -> list[Ended]:
    with threadpool_limits(1):  # the problems are small, and two processes share the cores
        return [solve(number) for number in numbers]


def main(problems: int = 2000, seed: int = 0, processes: int = 2, case: int | None = None) -> None:
    """A table by method. Status 1 if a case fails or less than half are solved."""
    if case is not None:
        name, drawn = draw(case)
        print(name, drawn.selector, drawn.kind, drawn.X.shape, drawn.X.dtype, drawn.y, sep="\n")
        print(drawn.X, solve(case), sep="\n")
        print(fitted(drawn.selector, KINDS[drawn.kind](drawn.X), drawn.y))
        return
    first, began = seed * 10**7, time.perf_counter()
    last = first + problems
    numbers = [range(a, min(a + CHUNK, last)) for a in range(first, last, CHUNK)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        ended = [one for part in pool.map(solve_some, numbers) for one in part]
    spent = time.perf_counter() - began
    by_method: dict[str, list[Ended]] = defaultdict(list)
    for one in ended:
        by_method[one.method].append(one)
    rows = []
    for name, some in sorted(by_method.items()):
        count = Counter(one.outcome for one in some)
        counts = [count[outcome] for outcome in ("solved", "refused", "failed")]
        rows.append((name, len(some), *counts, f"{max(one.seconds for one in some):.2f}"))
    head = ("method", "problems", "solved", "refused", "failed", "longest s")
    table(f"seed {seed}", head, rows)
    failed = [
        (number, one)
        for number, one in zip(range(first, first + problems), ended, strict=True)
        if one.outcome == "failed"
    ]
    for number, one in failed:
        print(f"--case {number}: {one.method}: {one.said}")
    solved = sum(one.outcome == "solved" for one in ended)
    print(
        f"{len(ended)} problems, {solved} solved, {len(failed)} failed, {spent:.0f} s, "
        f"{len(ended) / spent:.0f} per second"
    )
    for said, times in Counter(
        one.said[:110] for one in ended if one.outcome == "refused"
    ).most_common(12):
        print(f"  {times:6} × {said}")
    raise typer.Exit(int(bool(failed) or solved < len(ended) / 2))


if __name__ == "__main__":
    typer.run(main)
