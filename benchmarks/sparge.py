"""SparGE: its speed beside peers, its passes at 10⁹ non-zeros, its terms on 20 Newsgroups.

pip install skglm                                 # for the multi-task lasso
python benchmarks/sparge.py speed                 # 500 features at three corpora's scale
python benchmarks/sparge.py webspam 5%            # passes, bytes and memory of 16.6 million columns
python benchmarks/sparge.py quality DATA          # accuracy against the best that a user has today

DATA holds 20news-bydate.tar.xz. Every set of terms is scored by the same LinearSVC, and each peer
is compared with SparGE document by document (McNemar's exact test). γ is chosen on the training
half alone, by stratified folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import typer
from data import Corpus, newsgroups
from joblib import Memory
from scipy.stats import binomtest
from shared import STORES, peaks, row, table, timed
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import chi2, f_classif
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from bigfs import Matrix, SparGE, engine, storage

app = typer.Typer(add_completion=False)
CORPORA = ("news20", "rcv1.binary", "real-sim")
FEATURES = 500
KEPT = typer.Option(STORES, help="Where the stores are kept between runs.")
SIZES = (50, 100, 250, 500, 1000, 2000)
GAMMAS = (0.5, 0.7, 1.0, 1.4, 2.0)
FOLDS = 3
Choice = dict[int, np.ndarray]  # number of terms → terms


# --- the multi-task lasso -------------------------------------------------------------------------


def lasso(X: Any, y: np.ndarray) -> Callable[[float], np.ndarray]:
    """Return what fits skglm's at a share of the largest penalty, to the features' norms."""
    from skglm.datafits import QuadraticMultiTask
    from skglm.estimators import GeneralizedLinearEstimator
    from skglm.penalties import L2_1
    from skglm.solvers import MultiTaskBCD

    classes, codes = np.unique(y, return_inverse=True)
    Y = np.eye(len(classes))[codes] - np.bincount(codes) / len(y)
    columns = sp.csc_matrix(X)
    largest = np.linalg.norm(columns.T @ Y, axis=1).max() / len(Y)

    def fit(strength: float) -> np.ndarray:
        solver = MultiTaskBCD(tol=1e-3 * strength * largest, fit_intercept=True)
        penalty = L2_1(alpha=strength * largest)
        model = GeneralizedLinearEstimator(QuadraticMultiTask(), penalty, solver)
        return np.linalg.norm(model.fit(columns, Y).coef_, axis=1)

    return fit


def one_lasso(X: Any, y: np.ndarray, m: int) -> tuple[float, int]:
    """Seconds of one fit at the penalty that keeps about m features, and how many it keeps."""
    fit, few, many = lasso(X, y), 1.0, 1e-3
    for _ in range(12):
        middle = (few * many) ** 0.5
        kept = np.count_nonzero(fit(middle))
        if abs(kept - m) <= 0.05 * m:
            break
        few, many = (middle, many) if kept < m else (few, middle)
    return timed(fit, middle).seconds, kept


# --- speed ----------------------------------------------------------------------------------------


def touched(block: Any, start: int, stop: int) -> float:
    """What a bare pass does with a tile: read it and look at every value."""
    return float(block.data.sum())


@app.command()
def speed(stores: Path = KEPT, repeat: int = 2, workers: int = 2) -> None:
    """A fit from a staged store on workers that are up, beside bare passes and peers in memory."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in CORPORA:
        corpus = storage.open(storage.stage(f"synthetic:{name}", stores / f"{name}.zarr"))
        X, y = corpus.X, corpus.y
        with engine.cluster(workers=workers, memory_limit="1GB"):
            SparGE(n_features_to_select=10).fit(X, y)  # the workers import what they need
            run = timed(SparGE(n_features_to_select=FEATURES).fit, X, y, repeat=repeat)
            stats, last = run.value.result_.stats, run.value.result_.history[-1]
            bare = timed(X.map, touched, 1, repeat=3).seconds * (run.value.n_iter_ + 1)
            most, whole = peaks(), X.columns(np.arange(X.shape[1])).tocsr().astype(np.float64)
        svm = timed(LinearSVC(penalty="l1", dual=False, C=1.0).fit, whole, y).seconds
        anova = timed(f_classif, whole, y).seconds
        seconds, kept = one_lasso(whole, y, FEATURES)
        limit = (
            f"multi-task lasso {seconds:.2f} s, {kept} features ({run.seconds / seconds:.2f} ×); "
            f"ℓ1 SVM {svm:.2f} s, f_classif {anova:.2f} s, κ + 1 bare passes {bare:.2f} s"
        )
        what = f"a fit, {stats['passes']} passes, gap {100 * last['gap']:.2f} %"
        row(what, f"synthetic:{name}", f"{run.seconds:.2f} s; {most}", limit, "sparge.py speed")


def bytes_read(client: Any) -> int:
    """Bytes that the workers have read (Linux)."""
    return sum(client.run(lambda: int(open("/proc/self/io").readline().split()[1])).values())


@app.command()
def webspam(rows: str = "1%", stores: Path = KEPT, workers: int = 2) -> None:
    """`synthetic:webspam` at a share of its rows: time, passes, bytes read and peak memory."""
    staging = timed(
        lambda: storage.stage(
            f"synthetic:webspam?rows={rows}", stores / f"webspam-{rows.strip('%')}.zarr"
        )
    )
    corpus = storage.open(staging.value)
    with engine.cluster(workers=workers, memory_limit="1GB") as client:
        SparGE(n_features_to_select=10).fit(sp.eye_array(20, format="csr"), np.arange(20) % 2)
        one = timed(corpus.X.map, touched, 1).seconds
        before = bytes_read(client)
        run = timed(SparGE(n_features_to_select=FEATURES).fit, corpus.X, corpus.y)
        read, most = bytes_read(client) - before, peaks()
    stats, last = run.value.result_.stats, run.value.result_.history[-1]
    planted = len(set(corpus.spec["planted"]) & set(run.value.selected_.tolist()))
    table(
        f"webspam, {rows}: {corpus.X.shape}, {corpus.X.nnz:,} non-zeros",
        ["what", "figure"],
        [
            ["staging", f"{staging.seconds:.1f} s (0: it was there)"],
            [
                "fit",
                f"{run.seconds:.1f} s, {run.value.n_iter_} cuts, gap {100 * last['gap']:.2f} %",
            ],
            ["status", run.value.result_.status.name],
            ["passes", f"{stats['passes']}, a bare one {one:.2f} s"],
            ["fit / bare passes", f"{run.seconds / (one * stats['passes']):.2f}"],
            ["bytes read", f"{read:,} of {storage.info(staging.value)['bytes']['by columns']:,}"],
            ["features", f"{stats['gathered']:,} gathered, {planted} planted among {FEATURES}"],
            ["peak memory", most],
        ],
    )


# --- quality --------------------------------------------------------------------------------------


def right(corpus: Corpus, terms: np.ndarray) -> np.ndarray:
    """Which test documents a LinearSVC on these terms gets right."""
    columns = np.sort(terms)
    model = LinearSVC(random_state=0).fit(corpus.X[:, columns], corpus.y)
    return model.predict(corpus.X_test[:, columns]) == corpus.y_test


def sparge(X: sp.csr_array, y: np.ndarray, gamma: float) -> Choice:
    """m terms for each m, the best first: a path, each what a fit of its own would choose."""
    path = SparGE(embedding="lda", gamma=gamma).fit_path(Matrix.from_array(X), y, SIZES)
    return {m: selector.selected_ for m, selector in path.items()}


def validation(corpus: Corpus, gamma: float) -> np.ndarray:
    """Accuracy over folds of the training half (folds × sizes)."""
    curves = []
    for a, b in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(corpus.y, corpus.y):
        part = Corpus(corpus.X[a], corpus.y[a], corpus.X[b], corpus.y[b])
        terms = sparge(part.X, part.y, gamma)
        curves.append([right(part, terms[m]).mean() for m in SIZES])
    return np.array(curves)


def best(scores: np.ndarray, m: int) -> np.ndarray:
    return np.argsort(-np.nan_to_num(scores), kind="stable")[:m]


def nested(scores: np.ndarray) -> Choice:
    return {m: best(scores, m) for m in SIZES}


def svm_norms(X: sp.csr_array, y: np.ndarray, **settings: Any) -> np.ndarray:
    return np.linalg.norm(LinearSVC(random_state=0, **settings).fit(X, y).coef_, axis=0)


def tuned(
    fit: Callable[[float], np.ndarray], few: float, many: float, d: int, rounds: int = 6
) -> Choice:
    """For each m the m largest norms of the sparsest fit with m to 1.05 m terms that is found."""
    seen = {few: np.zeros(d), many: np.ones(d)}  # the ends, assumed
    fitted: dict[float, np.ndarray] = {}
    for m in SIZES:
        for _ in range(rounds):
            counts = {at: max(np.count_nonzero(scores), 1) for at, scores in seen.items()}
            if any(m <= counts[at] <= 1.05 * m for at in fitted):
                break
            high = min((at for at in seen if counts[at] >= m), key=lambda at: counts[at])
            low = min((at for at in seen if counts[at] < m), key=lambda at: abs(np.log(at / high)))
            share = np.log(1.02 * m / counts[low]) / np.log(counts[high] / counts[low])
            middle = float(low * (high / low) ** np.clip(share, 0.1, 0.9))
            seen[middle] = fitted[middle] = fit(middle)
    enough = {m: [s for s in fitted.values() if np.count_nonzero(s) >= m] for m in SIZES}
    return {m: best(min(fits, key=np.count_nonzero), m) for m, fits in enough.items()}


def l1_svm(corpus: Corpus) -> Choice:
    """C tuned to each m."""

    def fit(C: float) -> np.ndarray:
        return svm_norms(corpus.X, corpus.y, penalty="l1", dual=False, C=C)

    return tuned(fit, 1e-2, 10.0, corpus.X.shape[1])


def svm_rfe(corpus: Corpus, rate: float = 0.2) -> Choice:
    """A LinearSVC, then the `rate` of terms of least norm go, and again."""
    left, chosen = np.arange(corpus.X.shape[1]), {}
    for m in sorted(SIZES, reverse=True):
        while len(left) > m:
            scores = svm_norms(corpus.X[:, left], corpus.y)
            left = np.sort(left[best(scores, max(m, int((1 - rate) * len(left))))])
        chosen[m] = left
    return chosen


PEERS: dict[str, Callable[[Corpus], Choice]] = {
    "ℓ2 LinearSVC": lambda corpus: nested(svm_norms(corpus.X, corpus.y)),
    "ℓ1 LinearSVC": l1_svm,
    "SVM-RFE": svm_rfe,
    "multi-task lasso": lambda c: tuned(lasso(c.X, c.y), 1.0, 1e-2, c.X.shape[1]),
    "chi2": lambda corpus: nested(chi2(corpus.X, corpus.y)[0]),
    "ANOVA": lambda corpus: nested(f_classif(corpus.X, corpus.y)[0]),
}


def peer(name: str, corpus: Corpus) -> Choice:
    return PEERS[name](corpus)


@app.command()
def quality(data: Path, cache: Path | None = None) -> None:
    """Test accuracy on m terms. `--cache` keeps every fit, so that a run broken off goes on."""
    memory = Memory(cache, verbose=0)
    corpus = newsgroups(data / "20news-bydate.tar.xz")
    validate = memory.cache(validation, ignore=["corpus"])
    select = memory.cache(sparge, ignore=["X", "y"])
    by_peer = memory.cache(peer, ignore=["corpus"])
    curves = {gamma: validate(corpus, gamma).mean(axis=0) for gamma in GAMMAS}
    chosen = {m: max(GAMMAS, key=lambda gamma: curves[gamma][k]) for k, m in enumerate(SIZES)}
    rows = [[str(g), *(f"{a:.4f}" for a in curve)] for g, curve in curves.items()]
    table(f"Accuracy of {FOLDS} folds of the training half", ["γ", *map(str, SIZES)], rows)
    default = select(corpus.X, corpus.y, 1.0)
    sets = {"SparGE-LDA": {m: select(corpus.X, corpus.y, chosen[m])[m] for m in SIZES}}
    sets |= {"at the default γ": default}
    sets |= {"its run at 2000, nested": {m: default[max(SIZES)][:m] for m in SIZES}}
    sets |= {name: by_peer(name, corpus) for name in PEERS}
    hits = {name: {m: right(corpus, terms[m]) for m in SIZES} for name, terms in sets.items()}
    rows = [[name, *(f"{of[m].mean():.4f}" for m in SIZES)] for name, of in hits.items()]
    table("Test accuracy of a linear SVM on m terms", ["method", *map(str, SIZES)], rows)
    ours = hits.pop("SparGE-LDA")
    rows = [[name, *(paired(ours[m], of[m]) for m in SIZES)] for name, of in hits.items()]
    table("SparGE-LDA's lead in points, and McNemar's p", ["over", *map(str, SIZES)], rows)


def paired(ours: np.ndarray, theirs: np.ndarray) -> str:
    won, lost = int(np.sum(ours & ~theirs)), int(np.sum(theirs & ~ours))
    p = binomtest(won, won + lost).pvalue if won + lost else 1.0
    return f"{100 * (ours.mean() - theirs.mean()):+.2f} (p {p:.2g})"


if __name__ == "__main__":
    app()
