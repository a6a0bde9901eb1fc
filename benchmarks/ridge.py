"""The weighted ridge solve and SRLSR, RLSR, JHLSR on it: time, memory, agreement of the three ways,
and quality.

python benchmarks/ridge.py times            10 % labelled, generated corpora at the scale of News20,
    RCV1.binary and Real-Sim
python benchmarks/ridge.py agree            the three ways against one another at News20 scale
python benchmarks/ridge.py text DATA        20 Newsgroups by date, 10 % labelled, mean of 5 draws
python benchmarks/ridge.py small DATA       colon and COIL20, 10 … 50 % labelled
python benchmarks/ridge.py degrees DATA     JHLSR, HYPER and GRAPH on COIL20, by the degrees of D_v
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
import typer
from scipy.io import loadmat
from shared import newsgroups, table
from sklearn.feature_selection import f_classif
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import LinearSVC

import storage
from bigfs import RLSR, SRLSR, engine
from bigfs.graph import knn
from bigfs.graph.hypergraph.hypergraph import neighbor_hyperedges
from bigfs.graph.hypergraph.lasso import lasso_hyperedges
from bigfs.graph.hypergraph.smoothness import Smoothness
from bigfs.linalg.ridge import Ridge, centering
from bigfs.matrix import Matrix
from bigfs.result import NotConverged
from bigfs.selectors.row_sparse.jhlsr import JHLSR
from bigfs.selectors.row_sparse.jhlsr_operator import HypergraphOperator

app = typer.Typer(add_completion=False)
STORES = Path(tempfile.gettempdir()) / "bigfs-bench"
CORPORA = ("news20", "rcv1.binary", "real-sim")
SIZES = {"colon": (10, 20, 50, 100), "COIL20": (20, 50, 100, 200)}
warnings.simplefilter("ignore", NotConverged)  # the tables show the gap


def some_labels(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """y with all but `share` of each class, and at least one sample, set to −1."""
    rng, kept = np.random.default_rng(seed), np.full(len(y), -1)
    for c in np.unique(y):
        own = rng.permutation(np.flatnonzero(y == c))
        kept[own[: max(1, round(share * len(own)))]] = c
    return kept


def show(title: str, rows: list[dict[str, Any]]) -> None:
    table(title, list(rows[0]), [list(row.values()) for row in rows])


# --- time and memory ----------------------------------------------------------------------------


@app.command()
def times(stores: Path = STORES, hyperedges: str = "knn") -> None:
    """Each corpus and method in a process of its own, with two workers of 1 GB."""
    rows = []
    for corpus in CORPORA:
        for method in ("srlsr", "jhlsr"):
            run = [
                sys.executable,
                __file__,
                "one",
                corpus,
                method,
                "--stores",
                str(stores),
                "--hyperedges",
                hyperedges,
            ]
            rows.append(
                json.loads(
                    subprocess.run(
                        run, check=True, stdout=subprocess.PIPE, text=True
                    ).stdout.splitlines()[-1]
                )
            )
            print(rows[-1], file=sys.stderr)
    show("", rows)


@app.command()
def one(
    corpus: str,
    method: str,
    stores: Path = STORES,
    hyperedges: str = "knn",
    gamma: float = 1e-8,
    lam: float = 0.1,
) -> None:
    """One corpus and method, as a line of JSON."""
    uri = storage.stage(f"synthetic:{corpus}", stores / f"{corpus}.zarr")
    with engine.cluster(workers=2, memory_limit="1GB") as client:
        data = storage.open(uri)
        y = some_labels(np.asarray(data.y), 0.1, 0)
        graph, waited = None, 0.0
        if method == "jhlsr":
            start = time.perf_counter()
            near = knn(data.X, 10)
            graph = (
                neighbor_hyperedges(near) if hyperedges == "knn" else lasso_hyperedges(data.X, near)
            )
            waited = time.perf_counter() - start
        model: Any = (
            SRLSR(p=0.5, gamma=gamma) if method == "srlsr" else JHLSR(hyperedges=graph, lam=lam)
        )
        model.set_params(n_features_to_select=1000)
        start, before = time.perf_counter(), _processor() + sum(client.run(_processor).values())
        model.fit(data.X, y)
        seconds = time.perf_counter() - start
        processor = _processor() + sum(client.run(_processor).values()) - before
        workers = max(client.run(_peak).values())
    last = model.result_.history[-1]
    row = {
        "corpus": corpus,
        "method": method,
        "seconds": round(seconds, 1),
        "cpu s": round(processor, 1),
        "graph s": round(waited, 1),
        "rounds": model.n_iter_,
    }
    row |= {
        "features": int(last["features"]),
        "gap": f"{last['gap']:.1e}",
        "violation": f"{last['violation']:.1e}",
    }
    row |= {
        "ways": "+".join(sorted({p["plan"].solver for p in model.result_.stats["plans"]})),
        "passes": model.result_.stats["passes"],
    }
    row |= {
        "driver MB": round(_peak()),
        "worker MB": round(workers),
        "hyperedges": "" if graph is None else graph.shape[1],
    }
    row |= {"zero": model.result_.stats.get("zero_hyperedges", "")}
    print(json.dumps(row))


def _peak() -> float:
    """This process's peak resident memory, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _processor() -> float:
    """Seconds of processor time that this process has used: what the run takes where nothing else
    runs.
    """
    return time.process_time()


# --- agreement ----------------------------------------------------------------------------------


@app.command()
def agree(
    stores: Path = STORES, samples: int | None = None, features: int = 4000, dense: int = 4000
) -> None:
    """W of each way, at weights as they arise in SRLSR; the dense closed form on the first samples
    beside them.
    """
    data = storage.open(storage.stage("synthetic:news20", stores / "news20.zarr"))
    d = data.X.shape[1]
    X = Matrix.from_array(data.X.columns(np.arange(d))[:samples].astype(float))
    n, y = X.shape[0], np.asarray(data.y)[:samples]
    T = np.eye(y.max() + 1)[y] - np.bincount(y) / n
    phi = np.exp(-8 * np.random.default_rng(0).random(d))  # over 3.5 decades
    order = np.argsort(-X.stats.nnz, kind="stable")
    for name, u in {
        f"all {d} features": 1 / phi,
        f"a working set of {features}": np.where(
            np.isin(np.arange(d), order[:features]), 1 / phi, np.inf
        ),
    }.items():
        reference, rows = None, []
        on = np.flatnonzero(np.isfinite(u))
        Xu = X if len(on) == d else Matrix.from_array(X.columns(on))
        for solver in ("cg", "woodbury", "primal"):
            try:
                start = time.perf_counter()
                solved = (
                    Ridge(Xu, centering(n), solver=solver, targets=T.shape[1], tol=1e-10)
                    .prepare(u[on])
                    .solve(T)
                )
            except engine.NotEnoughMemory as error:
                rows.append(
                    {
                        "way": solver,
                        "seconds": "",
                        "residual": "",
                        "difference": str(error).split(" in one")[0],
                    }
                )
                continue
            reference = solved.W if reference is None else reference
            away = np.abs(solved.W - reference).max() / np.abs(reference).max()
            rows.append(
                {
                    "way": solver,
                    "seconds": round(time.perf_counter() - start, 1),
                    "residual": f"{solved.residual:.1e}",
                    "difference": f"{away:.1e}",
                }
            )
        show(f"n = {n}, {name}", rows)
    few = sp.csr_array(X.columns(order[:dense]))[:dense].toarray()
    start = time.perf_counter()
    Xc, T = few - few.mean(axis=0), T[:dense] - T[:dense].mean(axis=0)
    W = la.solve(Xc.T @ Xc + np.diag(1 / phi[order[:dense]]), Xc.T @ T, assume_a="pos")
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    ours = (
        Ridge(Matrix.from_array(sp.csr_array(few)), centering(dense), targets=T.shape[1])
        .prepare(1 / phi[order[:dense]])
        .solve(T)
        .W
    )
    away = np.abs(ours - W).max() / np.abs(W).max()
    print(
        f"\ndense closed form, {dense} × {dense}: {seconds:.1f} s; ours "
        f"{time.perf_counter() - start:.1f} s, difference {away:.1e}"
    )
    print(
        f"dense at {n} × {d}: Xc would take {n * d * 8 / 1e9:.1f} GB and "
        f"XcᵀXc {d * d * 8 / 1e9:.1f} GB"
    )


# --- quality ------------------------------------------------------------------------------------


def accuracies(
    order: np.ndarray,
    sizes: tuple[int, ...],
    train: Any,
    y: np.ndarray,
    test: Any,
    truth: np.ndarray,
) -> list[float]:
    """Test accuracy of LinearSVC, trained on the labelled samples with the first features of
    `order`.
    """
    return [
        LinearSVC(random_state=0, max_iter=5000)
        .fit(train[:, order[:m]], y)
        .score(test[:, order[:m]], truth)
        for m in sizes
    ]


def compare(
    methods: dict[str, Callable[[Any, np.ndarray], np.ndarray]],
    draws: Any,
    sizes: tuple[int, ...],
    first: str,
) -> list[dict[str, Any]]:
    """Mean accuracy over the draws (X, y with −1, test, truth) of each method's ranking."""
    found: dict[str, list[list[float]]] = {name: [] for name in methods}
    spent = dict.fromkeys(methods, 0.0)
    for X, y, test, truth in draws:
        known = y != -1
        for name, rank in methods.items():
            start = time.perf_counter()
            order = rank(X, y)
            spent[name] += time.perf_counter() - start
            found[name].append(accuracies(order, sizes, X[known], y[known], test, truth))
    means = {name: np.mean(values, axis=0) for name, values in found.items()}
    rows = []
    for name in methods:
        by_size = {str(m): f"{a:.3f}" for m, a in zip(sizes, means[name], strict=True)}
        rows.append(
            {
                first: name,
                **by_size,
                "mean": f"{means[name].mean():.3f}",
                "s a fit": f"{spent[name] / len(found[name]):.1f}",
            }
        )
    return rows


def _anova(X: Any, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        F = f_classif(X[y != -1], y[y != -1])[0]
    return np.argsort(-np.nan_to_num(F), kind="stable")


def _fitted(model: Any, labelled_only: bool = False) -> Callable[[Any, np.ndarray], np.ndarray]:
    def rank(X: Any, y: np.ndarray) -> np.ndarray:
        keep = y != -1 if labelled_only else np.ones(len(y), dtype=bool)
        return model.set_params(n_features_to_select=1.0).fit(X[keep], y[keep]).selected_

    return rank


@app.command()
def text(
    data: Annotated[Path, typer.Argument()], draws: int = 5, first: int = 0, share: float = 0.1
) -> None:
    """20 Newsgroups by date: rankings from the training part with 10 % of its labels, accuracy on
    the test part.
    """
    train, truth, test, test_truth = newsgroups(data / "20news-bydate.tar.xz")
    methods = {
        "ANOVA (labelled)": _anova,
        "RLSR γ=1e-3 (labelled)": _fitted(RLSR(gamma=1e-3, max_iter=25), labelled_only=True),
        "RLSR γ=1e-3": _fitted(RLSR(gamma=1e-3, max_iter=25)),
        "SRLSR p=.5 γ=1e-8": _fitted(SRLSR(p=0.5, gamma=1e-8, max_iter=40, tol=0.1)),
        "JHLSR μ=.01 λ=.1": _fitted(
            JHLSR(hyperedges="knn", n_neighbors=10, mu=0.01, lam=0.1, max_iter=25, tol=0.05)
        ),
    }
    found = (
        (train, some_labels(truth, share, seed), test, test_truth)
        for seed in range(first, first + draws)
    )
    show("", compare(methods, found, (50, 100, 250, 500, 1000), "features"))


@app.command()
def small(
    data: Annotated[Path, typer.Argument()],
    names: Annotated[list[str], typer.Option(default_factory=lambda: list(SIZES))],
    shares: Annotated[list[float], typer.Option(default_factory=lambda: [0.1, 0.3, 0.5])],
    draws: int = 5,
) -> None:
    """colon and COIL20: half of each class trains, with 10 … 50 % of it labelled, and half
    tests.
    """
    for name in names:
        mat = loadmat(data / f"{name}.mat")
        X = mat["X"].astype(float)
        X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
        d = X.shape[1]  # ‖x_i‖² is about d: the penalties grow with it
        _, y = np.unique(mat["Y"].ravel(), return_inverse=True)
        edges = {"n_neighbors": 10, "metric": "euclidean", "max_iter": 60, "gamma": 1e-3}
        methods = {
            "ANOVA (labelled)": _anova,
            "RLSR (labelled)": _fitted(RLSR(gamma=1e-2 * d, max_iter=100), labelled_only=True),
            "RLSR": _fitted(RLSR(gamma=1e-2 * d, max_iter=100)),
            "SRLSR p=.5": _fitted(SRLSR(gamma=1e-5 * d, max_iter=100)),
            "JHLSR": _fitted(JHLSR(hyperedges="lasso", lam=0.1 * d**0.5, **edges)),
            "HYPER": _fitted(JHLSR(hyperedges="lasso", variant="hyper", lam=0.1 * d**0.5, **edges)),
            "GRAPH": _fitted(JHLSR(variant="graph", lam=0.1 * d**0.5, **edges)),
        }
        for share in shares:
            show(
                f"{name} {X.shape}, {share:.0%} labelled",
                compare(methods, list(_halves(X, y, share, draws)), SIZES[name], "features"),
            )


@app.command()
def degrees(data: Annotated[Path, typer.Argument()], draws: int = 3) -> None:
    """COIL20, 5 % labelled, 40 % unlabelled, 55 % test: how far JHLSR's choice is from HYPER's and
    GRAPH's with weighted and with incidence degrees, the accuracy of each, and ‖I − L_H‖ at w.

    Pixels are divided by 255. The accuracy is that of an SVM by three folds inside the test part,
    in the mean over 10, 20, 50, 100 and 200 pixels.
    """
    mat = loadmat(data / "COIL20.mat")
    X = mat["X"].astype(float)
    X /= X.max()
    _, y = np.unique(mat["Y"].ravel(), return_inverse=True)
    rows = []
    for mu, lam in ((1.0, 0.01), (1.0, 0.1), (10.0, 0.01), (10.0, 0.1)):
        for reading in ("weighted", "incidence"):
            found = [_variants(X, y, seed, mu, lam, reading) for seed in range(draws)]
            rows.append(
                {"μ": f"{mu:g}", "λ": f"{lam:g}", "degrees": reading}
                | {name: f"{np.mean([one[name] for one in found]):.3g}" for name in found[0]}
            )
    show("COIL20", rows)


def _variants(
    X: np.ndarray, y: np.ndarray, seed: int, mu: float, lam: float, reading: str
) -> dict[str, float]:
    fitted = some_labels(y, 0.45, seed) >= 0
    labels = some_labels(y[fitted], 0.05 / 0.45, seed)
    found: dict[str, float] = {}
    models = {}
    for name, variant in (("JHLSR", "joint"), ("HYPER", "hyper"), ("GRAPH", "graph")):
        model = JHLSR(
            mu=mu, lam=lam, gamma=1e-3, degrees=reading, variant=variant, n_neighbors=10,
            metric="euclidean", max_iter=60, n_features_to_select=200,
        ).fit(X[fitted], labels)  # fmt: skip
        models[name] = model
        found[name] = float(
            np.mean(
                [
                    cross_val_score(
                        LinearSVC(random_state=0), X[~fitted][:, model.selected_[:k]], y[~fitted],
                        cv=StratifiedKFold(3, shuffle=True, random_state=0),
                    ).mean()
                    for k in (10, 20, 50, 100, 200)
                ]
            )
        )  # fmt: skip
    joint, w = models["JHLSR"], models["JHLSR"].hyperedge_weights_
    for name in ("HYPER", "GRAPH"):
        other = models[name]
        found[f"shared with {name}, of 100"] = len(
            set(joint.selected_[:100]) & set(other.selected_[:100])
        )
        found[f"‖S − S_{name}‖/‖S‖"] = float(
            np.linalg.norm(joint.coef_ - other.coef_) / np.linalg.norm(joint.coef_)
        )
    n = joint.hypergraph_.shape[0]
    smoothness = Smoothness(joint.hypergraph_, reading)
    root = HypergraphOperator.of(smoothness, np.zeros(n), 1.0, w).factor()
    found["‖I − L_H‖"] = float(np.linalg.norm((root @ root.T).toarray(), 2))
    found["hyperedges"], found["zero weights"] = len(w), int(np.sum(w == 0))
    found["rounds"] = joint.n_iter_
    return found


def _halves(X: np.ndarray, y: np.ndarray, share: float, draws: int) -> Any:
    for seed in range(draws):
        train = some_labels(y, 0.5, seed) >= 0
        yield X[train], some_labels(y[train], share, seed), X[~train], y[~train]


if __name__ == "__main__":
    app()
