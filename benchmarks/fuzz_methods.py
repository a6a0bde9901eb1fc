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
from typing import Annotated, Any, NamedTuple

import dask.array as da
import numpy as np
import scipy.sparse as sp
import typer
from shared import table
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file
from sklearn.exceptions import DataConversionWarning
from threadpoolctl import threadpool_limits

import storage
from bigfs import (
    ANOVA,
    CMIM,
    DLSR,
    GLSPFS,
    GSC,
    JELSR,
    JFS,
    JGSC,
    JHLSR,
    JMI,
    L1SVM,
    L2SVM,
    LLFS,
    LSDF,
    MCFS,
    MRMR,
    MRSF,
    NDFS,
    RFS,
    RJGSC,
    RLSR,
    RRPC,
    SMR,
    SPEC,
    SPFS,
    SRLSR,
    SVMRFE,
    TRCFS,
    UDFS,
    Chi2,
    Fisher,
    Gini,
    LaplacianScore,
    MultiTaskLasso,
    MutualInformation,
    ReliefF,
    SparGE,
    SparGECV,
    SSelect,
    TraceRatio,
    TScore,
    Variance,
)
from bigfs.result import NotConverged

LIMIT = 60.0  # seconds of one problem
CHUNK = 50  # problems a task
STORES = 0.01  # of the problems are fitted from a store too
AGAIN = 0.1  # are fitted again, and from another kind of input
INTERNALS = (
    "leading minor",
    "broadcast",
    "lapack",
    "singular matrix",
    "must not contain infs",
    "zero-size",
    "shapes (",
    "out of bounds",
    "eigenvalues did",
)
ADVICE = ("The number of unique classes", "The least populated class")  # scikit-learn's, on y
INFINITE = (ANOVA, Fisher, LSDF, TScore)  # document an infinite score
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


# --- methods --------------------------------------------------------------------------------------


def pick(rng: Rng, *values: Any) -> Any:
    return values[rng.integers(len(values))]


def power(rng: Rng, low: float, high: float) -> float:
    return float(10 ** rng.uniform(low, high))


def sparge(embedding: str) -> Callable[[Rng, int, int], Any]:
    def make(rng: Rng, n: int, d: int) -> SparGE:
        return SparGE(
            embedding=embedding,
            gamma=power(rng, -4, 3),
            n_components=pick(rng, None, None, None, 1, 2, 3),
            n_neighbors=int(rng.integers(1, 6)),
            metric=pick(rng, "cosine", "euclidean"),
            weighting=pick(rng, "uniform", "degree"),
            beta=power(rng, -2, 2),
            ranking=pick(rng, "elimination", "weights"),
            solver=pick(rng, "auto", "newton", "simplex", "auto", "auto", "apg"),
            tol=power(rng, -6, -1),
            max_iter=int(rng.integers(1, 9)),
        )

    return make


def sparge_cv(rng: Rng, n: int, d: int) -> SparGECV:
    return SparGECV(
        gammas=(power(rng, -3, 0), power(rng, 0, 3)),
        cv=int(rng.integers(2, 4)),
        max_iter=int(rng.integers(1, 6)),
    )


def rescaled(make: Any, **more: Callable[[Rng], Any]) -> Callable[[Rng, int, int], Any]:
    def one(rng: Rng, n: int, d: int) -> Any:
        return make(
            gamma=power(rng, -6, 2),
            solver=pick(rng, "auto", "woodbury", "primal", "cg"),
            tol=power(rng, -4, -1),
            max_iter=int(rng.integers(1, 15)),
            **{key: draw(rng) for key, draw in more.items()},
        )

    return one


def jhlsr(rng: Rng, n: int, d: int) -> JHLSR:
    return JHLSR(
        mu=power(rng, -3, 1),
        lam=power(rng, -4, 1),
        gamma=power(rng, -4, 1),
        variant=pick(rng, "joint", "hyper", "graph"),
        hyperedges=pick(rng, "lasso", "knn", "labels"),
        degrees=pick(rng, "weighted", "incidence"),
        n_neighbors=int(rng.integers(1, 8)),
        metric=pick(rng, "cosine", "euclidean"),
        mode=pick(rng, "auto", "auto", "unsupervised"),
        solver=pick(rng, "auto", "woodbury", "primal", "cg"),
        tol=power(rng, -4, -1),
        max_iter=int(rng.integers(1, 15)),
    )


def coding(make: Any) -> Callable[[Rng, int, int], Any]:
    def one(rng: Rng, n: int, d: int) -> Any:
        return make(
            dictionary=rng.normal(size=(int(rng.integers(1, 8)), d))
            if rng.random() < 0.7
            else None,
            n_atoms=int(rng.integers(1, 6)),
            epochs=1,
            alpha=pick(rng, 0.0, power(rng, -3, 2)),
            lam=power(rng, -3, 2),
            n_neighbors=int(rng.integers(1, 6)),
            metric=pick(rng, "cosine", "euclidean"),
            weights=pick(rng, "binary", "heat"),
            max_iter=int(rng.integers(1, 8)),
        )

    return one


def smr(rng: Rng, n: int, d: int) -> SMR:
    M = int(pick(rng, *[m for m in range(1, d + 1) if d % m == 0]))
    return SMR(
        sample_shape=pick(rng, None, (M, d // M)),
        order=pick(rng, "C", "F"),
        alpha=power(rng, -3, 3),
        k=int(rng.integers(1, 5)),
        p=float(rng.uniform(0.2, 2)),
        gram=pick(rng, "covariance", "samples"),
        max_iter=int(rng.integers(1, 8)),
    )


def laplacian_score(rng: Rng, n: int, d: int) -> LaplacianScore:
    metric = pick(rng, "cosine", "euclidean")
    weights = pick(rng, "binary", "heat", *(["cosine"] if metric == "cosine" else []))
    return LaplacianScore(n_neighbors=int(rng.integers(1, 8)), metric=metric, weights=weights)


def on_graph(
    make: Callable[..., Any], **choices: tuple[Any, ...]
) -> Callable[[Rng, int, int], Any]:
    def made(rng: Rng, n: int, d: int) -> Any:
        return make(
            n_neighbors=int(rng.integers(1, 8)),
            metric=pick(rng, "cosine", "euclidean"),
            **{name: pick(rng, *values) for name, values in choices.items()},
        )

    return made


METHODS: dict[str, Callable[[Rng, int, int], Any]] = {
    "anova": lambda rng, n, d: ANOVA(),
    "mutual-info": lambda rng, n, d: MutualInformation(n_bins=pick(rng, "auto", 1, 3)),
    "gini": lambda rng, n, d: Gini(),
    "t-score": lambda rng, n, d: TScore(),
    "variance": lambda rng, n, d: Variance(),
    "mrmr": lambda rng, n, d: MRMR(
        relevance=pick(rng, "mutual-info", "f"),
        scheme=pick(rng, "difference", "quotient"),
        n_bins=pick(rng, "auto", 1, 3),
    ),
    "rrpc": lambda rng, n, d: RRPC(),
    "jmi": lambda rng, n, d: JMI(n_bins=pick(rng, "auto", 1, 3)),
    "cmim": lambda rng, n, d: CMIM(n_bins=pick(rng, "auto", 1, 3)),
    "relieff": on_graph(ReliefF),
    "spec": on_graph(SPEC, ranking=("phi1", "phi2", "phi3"), n_components=(1, 3, 10)),
    "lsdf": on_graph(LSDF, gamma=(0.1, 100.0)),
    "sselect": on_graph(SSelect, lam=(0.0, 0.5, 1.0)),
    "trace-ratio": on_graph(TraceRatio, form=("fisher", "laplacian")),
    "trcfs": on_graph(TRCFS, alpha=(0.5, 0.99)),
    "fisher": lambda rng, n, d: Fisher(),
    "chi2": lambda rng, n, d: Chi2(),
    "laplacian": laplacian_score,
    **{
        f"sparge-{embedding}": sparge(embedding)
        for embedding in ("lda", "cca", "hsl", "sda", "lpp", "pca")
    },
    "sparge-cv": sparge_cv,
    "srlsr": rescaled(SRLSR, p=lambda rng: float(rng.uniform(0.2, 1))),
    "rlsr": rescaled(RLSR),
    "jhlsr": jhlsr,
    "jgsc": coding(JGSC),
    "rjgsc": coding(RJGSC),
    "smr": smr,
    "l1-svm": lambda rng, n, d: L1SVM(C=pick(rng, "auto", 0.1, 10.0)),
    "multitask-lasso": lambda rng, n, d: MultiTaskLasso(alpha=pick(rng, "auto", 0.01)),
    "mcfs": lambda rng, n, d: MCFS(metric=pick(rng, "cosine", "euclidean")),
    "mrsf": lambda rng, n, d: MRSF(metric=pick(rng, "cosine", "euclidean")),
    "rfs": lambda rng, n, d: RFS(gamma=10.0 ** rng.integers(-2, 2)),
    "dlsr": lambda rng, n, d: DLSR(gamma=pick(rng, "auto", 1.0)),
    "spfs": lambda rng, n, d: SPFS(alpha=pick(rng, "auto", 0.01)),
    "jelsr": lambda rng, n, d: JELSR(alpha=pick(rng, 0.05, 0.5)),
    "ndfs": lambda rng, n, d: NDFS(beta=pick(rng, 0.05, 0.5)),
    "udfs": lambda rng, n, d: UDFS(gamma=pick(rng, 0.01, 1.0)),
    "glspfs": lambda rng, n, d: GLSPFS(lam=pick(rng, 0.01, 1.0)),
    "jfs": lambda rng, n, d: JFS(gamma=10.0 ** rng.integers(-2, 2)),
    "gsc": coding(GSC),
    "llfs": lambda rng, n, d: LLFS(lam=10.0 ** rng.integers(-2, 1), n_neighbors=3),
    "l2-svm": lambda rng, n, d: L2SVM(C=10.0 ** rng.integers(-2, 2)),
    "svm-rfe": lambda rng, n, d: SVMRFE(step=pick(rng, 1, 3, 0.3)),
}


# --- data -----------------------------------------------------------------------------------------


def draw_X(rng: Rng, odd: bool, positive: bool) -> np.ndarray:
    n, d = (
        (int(rng.integers(1, 61)), int(rng.integers(1, 61)))
        if odd
        else (int(rng.integers(12, 61)), int(rng.integers(4, 61)))
    )
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


def repeated_rows(rng: Rng, X: np.ndarray) -> np.ndarray:
    return X[rng.integers(0, max(1, len(X) // 2), len(X))]


def repeated_columns(rng: Rng, X: np.ndarray) -> np.ndarray:
    return X[:, rng.integers(0, max(1, X.shape[1] // 2), X.shape[1])]


def zero_rows(rng: Rng, X: np.ndarray) -> np.ndarray:
    X[rng.random(len(X)) < rng.random()] = 0
    return X


def one_feature(rng: Rng, X: np.ndarray) -> np.ndarray:
    return X[:, :1]


def few_samples(rng: Rng, X: np.ndarray) -> np.ndarray:
    return X[:3]


def other_scale(rng: Rng, X: np.ndarray) -> np.ndarray:
    return X * 10.0 ** pick(rng, -300, -100, -20, -6, 6, 20, 100, 300)


def scaled_columns(rng: Rng, X: np.ndarray) -> np.ndarray:
    return X * 10.0 ** rng.integers(-12, 13, X.shape[1])


def scaled_rows(rng: Rng, X: np.ndarray) -> np.ndarray:
    return X * 10.0 ** rng.integers(-12, 13, (len(X), 1))


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
    repeated_rows: 0.15,
    repeated_columns: 0.1,
    zero_rows: 0.1,
    one_feature: 0.05,
    few_samples: 0.05,
    other_scale: 0.15,
    scaled_columns: 0.05,
    scaled_rows: 0.05,
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
    selector = METHODS[name](rng, *X.shape)
    selector.set_params(
        n_features_to_select=pick(rng, None, 1, 0.3)
        if name in ("jgsc", "rjgsc", "gsc")
        else pick(rng, None, 1, 0.3, X.shape[1])
    )
    return name, Case(selector, X, draw_y(rng, len(X), odd, name), pick(rng, *KINDS), not odd)


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
    if np.isinf(scores).any() and not isinstance(model, INFINITE):
        raise Wrong("infinite scores_")
    wanted = model._count(len(scores))
    if len(np.unique(model.selected_)) != wanted or model.support_.sum() != wanted:
        raise Wrong(f"{len(np.unique(model.selected_))} features selected, {wanted} asked for")
    if name not in ("jgsc", "rjgsc", "gsc") and len(scores) != d:
        raise Wrong(f"{len(scores)} scores for {d} features")


def compare(one: Any, other: Any, what: str, exactly: bool = False) -> None:
    if isinstance(one, str) or isinstance(other, str):
        if isinstance(one, str) != isinstance(other, str):
            raise Wrong(
                f"{what}: {one if isinstance(one, str) else 'solved'} / "
                f"{other if isinstance(other, str) else 'solved'}"
            )
        return
    if exactly:
        if not np.array_equal(one.scores_, other.scores_):
            raise Wrong(f"{what}: other scores")
    elif not np.allclose(
        one.scores_,
        other.scores_,
        rtol=1e-4,
        atol=1e-6 * np.abs(one.scores_[np.isfinite(one.scores_)]).max(initial=0),
    ):
        raise Wrong(f"{what}: scores differ by {np.abs(one.scores_ - other.scores_).max():.1e}")


def from_a_store(case: Case, one: Any) -> None:
    """The same of a store as of its columns in memory."""
    with tempfile.TemporaryDirectory() as folder:
        dump_svmlight_file(case.X, case.y, f"{folder}/x.svm", zero_based=True)
        corpus = storage.open(
            storage.stage(f"{folder}/x.svm", f"{folder}/x.zarr", tile_rows=max(1, len(case.X) // 2))
        )
        if corpus.X.shape == case.X.shape:
            memory = corpus.X.columns(np.arange(case.X.shape[1]))
            compare(
                fitted(case.selector, memory, corpus.y),
                fitted(case.selector, corpus.X, corpus.y),
                "store",
            )


def solve(number: int) -> Ended:
    name, case = draw(number)
    began = time.perf_counter()
    rng = np.random.default_rng([number, 1])
    try:
        X = KINDS[case.kind](case.X)
        before = case.X.copy()
        model = fitted(case.selector, X, case.y)
        seconds = time.perf_counter() - began
        if not isinstance(model, str):
            examine(name, model, case.X.shape[1])
        if not np.array_equal(before, case.X, equal_nan=case.X.dtype.kind == "f"):
            raise Wrong("X was written to")
        if seconds > LIMIT:
            raise Wrong(f"{seconds:.0f} s")
        if rng.random() < AGAIN:
            compare(model, fitted(case.selector, X, case.y), "again", exactly=True)
            other = pick(rng, *KINDS)
            if case.regular:
                compare(
                    model,
                    fitted(case.selector, KINDS[other](case.X), case.y),
                    f"{case.kind} / {other}",
                )
        if (
            case.regular
            and case.y.ndim == 1
            and case.y.dtype.kind == "i"
            and rng.random() < STORES / 0.5
        ):
            from_a_store(case, model)
    except Wrong as error:
        return Ended(name, "failed", time.perf_counter() - began, str(error))
    except Exception as error:  # any other exception is what is looked for
        at = traceback.extract_tb(error.__traceback__)[-1]
        return Ended(
            name,
            "failed",
            time.perf_counter() - began,
            f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})",
        )
    return Ended(
        name,
        "refused" if isinstance(model, str) else "solved",
        seconds,
        model if isinstance(model, str) else "",
    )


def solve_some(numbers: range) -> list[Ended]:
    with threadpool_limits(1):  # the problems are small, and two processes share the cores
        return [solve(number) for number in numbers]


def main(
    problems: Annotated[int, typer.Option(help="how many")] = 2000,
    seed: Annotated[int, typer.Option(help="which ones: case seed·10⁷ and those that follow")] = 0,
    processes: Annotated[int, typer.Option(help="at once")] = 2,
    case: Annotated[int | None, typer.Option(help="only this one, with what it says")] = None,
) -> None:
    """A table by method; each failing case with its number.

    Exit status 1 if there is one, or less than half are solved.
    """
    if case is not None:
        name, drawn = draw(case)
        print(
            name,
            drawn.selector,
            drawn.kind,
            drawn.X.shape,
            drawn.X.dtype,
            drawn.y,
            drawn.X,
            sep="\n",
        )
        print(solve(case))
        print(fitted(drawn.selector, KINDS[drawn.kind](drawn.X), drawn.y))
        return
    first, began = seed * 10**7, time.perf_counter()
    numbers = [
        range(a, min(a + CHUNK, first + problems)) for a in range(first, first + problems, CHUNK)
    ]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        ended = [one for part in pool.map(solve_some, numbers) for one in part]
    spent = time.perf_counter() - began
    by_method: dict[str, list[Ended]] = defaultdict(list)
    for one in ended:
        by_method[one.method].append(one)
    rows = []
    for name, some in sorted(by_method.items()):
        count = Counter(one.outcome for one in some)
        seconds = [one.seconds for one in some]
        rows.append(
            (
                name,
                len(some),
                count["solved"],
                count["refused"],
                count["failed"],
                f"{np.mean(seconds) * 1e3:.1f}",
                f"{max(seconds):.2f}",
            )
        )
    table(
        f"seed {seed}",
        ("method", "problems", "solved", "refused", "failed", "mean ms", "longest s"),
        rows,
    )
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
