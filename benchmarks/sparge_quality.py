"""SparGE-LDA's terms on 20 Newsgroups by date, against the best that a user has today: a linear
SVM's test accuracy.

python benchmarks/sparge_quality.py DATA [--cache FOLDER] (pip install skglm, for the multi-task
lasso)

DATA holds 20news-bydate.tar.xz. γ is chosen on the training half alone, by stratified folds. Every
set of terms is judged by the same LinearSVC, and each baseline is compared with SparGE document by
document (McNemar's exact test).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import scipy.sparse as sp
import typer
from joblib import Memory
from scipy.stats import binomtest
from shared import Corpus, newsgroups, table
from sklearn.feature_selection import chi2, f_classif
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from bigfs import Matrix, SparGE

SIZES = (50, 100, 250, 500, 1000, 2000)
GAMMAS = (0.5, 0.7, 1.0, 1.4, 2.0)
FOLDS = 3


def right(corpus: Corpus, terms: np.ndarray) -> np.ndarray:
    """Which test documents a LinearSVC on these terms gets right."""
    columns = np.sort(terms)
    model = LinearSVC(random_state=0).fit(corpus.X[:, columns], corpus.y)
    return model.predict(corpus.X_test[:, columns]) == corpus.y_test


# --- SparGE ---------------------------------------------------------------------------------------


def sparge(X: sp.csr_array, y: np.ndarray, gamma: float) -> dict[int, np.ndarray]:
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


# --- what a user has today ------------------------------------------------------------------------


def norms(model: LinearSVC) -> np.ndarray:
    return np.linalg.norm(model.coef_, axis=0)


def best(scores: np.ndarray, m: int) -> np.ndarray:
    return np.argsort(-np.nan_to_num(scores), kind="stable")[:m]


def l2_svm(corpus: Corpus) -> dict[int, np.ndarray]:
    scores = norms(LinearSVC(random_state=0).fit(corpus.X, corpus.y))
    return {m: best(scores, m) for m in SIZES}


def l1_svm(corpus: Corpus) -> dict[int, np.ndarray]:
    """C tuned to each m."""

    def fit(C: float) -> np.ndarray:
        return norms(
            LinearSVC(penalty="l1", dual=False, C=C, random_state=0).fit(corpus.X, corpus.y)
        )

    return tuned(fit, 1e-2, 10.0, corpus.X.shape[1])


def tuned(
    fit: Callable[[float], np.ndarray], few: float, many: float, d: int, rounds: int = 6
) -> dict[int, np.ndarray]:
    """For each m the sparsest fit seen with m terms or more, and its m largest norms.

    A penalty is sought, by interpolating log counts, until it gives m to 1.05 m terms; the sizes
    share their fits.
    """
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
    enough = {
        m: [scores for scores in fitted.values() if np.count_nonzero(scores) >= m] for m in SIZES
    }
    return {m: best(min(fits, key=np.count_nonzero), m) for m, fits in enough.items()}


def svm_rfe(corpus: Corpus, rate: float = 0.2) -> dict[int, np.ndarray]:
    """Gradual recursive elimination: a LinearSVC, then the `rate` of terms of least norm go, and
    again.
    """
    left, chosen = np.arange(corpus.X.shape[1]), {}
    for m in sorted(SIZES, reverse=True):
        while len(left) > m:
            scores = norms(LinearSVC(random_state=0).fit(corpus.X[:, left], corpus.y))
            left = np.sort(left[best(scores, max(m, int((1 - rate) * len(left))))])
        chosen[m] = left
    return chosen


def multitask_lasso(corpus: Corpus) -> dict[int, np.ndarray]:
    """skglm's, on the indicators, with an intercept; the penalty tuned to each m."""
    from skglm.datafits import QuadraticMultiTask
    from skglm.estimators import GeneralizedLinearEstimator
    from skglm.penalties import L2_1
    from skglm.solvers import MultiTaskBCD

    Y = np.eye(corpus.y.max() + 1)[corpus.y]
    Y -= Y.mean(axis=0)
    X = sp.csc_matrix(corpus.X)
    alphas = np.linalg.norm(X.T @ Y, axis=1) / len(Y)

    def fit(strength: float) -> np.ndarray:
        solver = MultiTaskBCD(tol=1e-3 * strength * alphas.max(), fit_intercept=True)
        model = GeneralizedLinearEstimator(
            QuadraticMultiTask(), L2_1(alpha=strength * alphas.max()), solver
        ).fit(X, Y)
        return np.linalg.norm(model.coef_, axis=1)  # d × classes

    return tuned(fit, 1.0, 1e-2, len(alphas))


def univariate(corpus: Corpus, score) -> dict[int, np.ndarray]:
    scores = score(corpus.X, corpus.y)[0]
    return {m: best(scores, m) for m in SIZES}


# --- the run --------------------------------------------------------------------------------------


def main(
    data: Annotated[Path, typer.Argument(help="the folder with 20news-bydate.tar.xz")],
    cache: Annotated[
        Path | None, typer.Option(help="keep every fit here, so that a run broken off goes on")
    ] = None,
) -> None:
    memory = Memory(cache, verbose=0)
    corpus = memory.cache(newsgroups)(data / "20news-bydate.tar.xz")
    validate, select = (
        memory.cache(validation, ignore=["corpus"]),
        memory.cache(sparge, ignore=["X", "y"]),
    )

    curves = {gamma: validate(corpus, gamma).mean(axis=0) for gamma in GAMMAS}
    chosen = {m: max(GAMMAS, key=lambda gamma: curves[gamma][k]) for k, m in enumerate(SIZES)}
    table(
        f"Accuracy within the training half, {FOLDS} folds; the best γ of each m is chosen",
        ["γ", *map(str, SIZES)],
        [[str(g), *(f"{a:.4f}" for a in curve)] for g, curve in curves.items()],
    )

    sets = {
        "SparGE-LDA": {m: select(corpus.X, corpus.y, chosen[m])[m] for m in SIZES},
        "at the default γ": select(corpus.X, corpus.y, 1.0),
        "its run at 2000, nested": {
            m: select(corpus.X, corpus.y, 1.0)[max(SIZES)][:m] for m in SIZES
        },
        "ℓ2 LinearSVC": memory.cache(l2_svm, ignore=["corpus"])(corpus),
        "ℓ1 LinearSVC": memory.cache(l1_svm, ignore=["corpus"])(corpus),
        "SVM-RFE": memory.cache(svm_rfe, ignore=["corpus"])(corpus),
        "multi-task lasso": memory.cache(multitask_lasso, ignore=["corpus"])(corpus),
        "chi2": univariate(corpus, chi2),
        "ANOVA": univariate(corpus, f_classif),
    }
    hits = {name: {m: right(corpus, terms[m]) for m in SIZES} for name, terms in sets.items()}
    table(
        "Test accuracy of a linear SVM on m terms",
        ["method", *map(str, SIZES)],
        [[name, *(f"{of[m].mean():.4f}" for m in SIZES)] for name, of in hits.items()],
    )
    ours = hits.pop("SparGE-LDA")
    against = [[name, *(paired(ours[m], of[m]) for m in SIZES)] for name, of in hits.items()]
    table("SparGE-LDA's lead in points, and McNemar's p", ["over", *map(str, SIZES)], against)


def paired(ours: np.ndarray, theirs: np.ndarray) -> str:
    won, lost = int(np.sum(ours & ~theirs)), int(np.sum(theirs & ~ours))
    p = binomtest(won, won + lost).pvalue if won + lost else 1.0
    return f"{100 * (ours.mean() - theirs.mean()):+.2f} (p {p:.2g})"


if __name__ == "__main__":
    typer.run(main)
