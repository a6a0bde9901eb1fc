"""SparGE with γ by cross-validation: the penalty whose features explain the embedding of held-out
samples best.

    loss(γ) = mean over folds of  min_γ' ‖T_out − 1b − (X_out − 1μᵀ) W‖² / ‖T_out − 1b‖²

W is a ridge, of whichever penalty γ' of the grid serves it best, on the m features that SparGE
chooses at γ without the fold's samples: the choice is judged, not the shrinkage. μ and b are the
means of X and T over the samples left in. A fold is a weight of 0 or 1 on the samples (ω of
`gathered`), so the grid runs side by side: a pass over X serves every γ and every fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import solve
from sklearn.model_selection import KFold, StratifiedKFold

from bigfs.cutting_plane.columns import Gathered
from bigfs.cutting_plane.loop import Cuts, Problem, side_by_side
from bigfs.selectors.sparge import SparGE, spread
from bigfs.types import FloatArray, IntArray


class SparGECV(SparGE):
    """SparGE with γ chosen from a grid by cross-validation on the samples of `fit`.

    The grid costs the passes of its slowest member, and the fit at the chosen γ its own after that.

    Parameters
    ----------
    gammas : penalties to try, in the units of `SparGE`'s gamma.
    cv : number of folds, shuffled with a fixed seed, by class where y has classes; or an object
        with scikit-learn's `split`.
    embedding, n_features_to_select, … : as `SparGE`. The embedding T is that of all samples of
        `fit`.

    Attributes
    ----------
    gamma_ : the chosen γ, the largest whose mean loss is within one standard error of the least:
        the cheapest of equals.
    losses_ : (len(gammas), folds) the share of T, held out, that the chosen features leave
        unexplained.
    And all those of `SparGE`.

    Raises
    ------
    ValueError : gammas that are not positive, and as `SparGE`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{
            name: allowed
            for name, allowed in SparGE._parameter_constraints.items()
            if name != "gamma"
        },
        "gammas": ["array-like"],
        "cv": ["cv_object"],
    }

    def __init__(
        self,
        *,
        embedding: str = "lda",
        n_features_to_select: int | float | None = None,
        gammas: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0),
        cv: Any = 3,
        n_components: int | None = None,
        n_neighbors: int = 5,
        metric: Literal["cosine", "euclidean"] = "cosine",
        graph: Any = None,
        weighting: str = "uniform",
        beta: float = 1.0,
        ranking: str = "elimination",
        solver: str = "auto",
        tol: float = 0.01,
        max_iter: int = 50,
    ) -> None:
        self.embedding = embedding
        self.n_features_to_select = n_features_to_select
        self.gammas = gammas
        self.cv = cv
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.graph = graph
        self.weighting = weighting
        self.beta = beta
        self.ranking = ranking
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter

    def _validate_params(self) -> None:
        super()._validate_params()
        gammas = np.asarray(self.gammas).ravel()
        if not len(gammas) or not np.issubdtype(gammas.dtype, np.number) or not gammas.min() > 0:
            raise ValueError(f"gammas={self.gammas}: give one or more positive numbers")

    def _gamma(self, data: Gathered, y: Any, m: int) -> float:
        gammas = np.asarray(self.gammas, dtype=np.float64).ravel()
        unit = spread(data.X)
        folds = [_fold(data, inside) for inside, _ in self._folds(data.T, y)]
        problems = [Problem(fold, m, gamma * unit) for gamma in gammas for fold in folds]
        runs = side_by_side(
            problems,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            name=f"SparGE folds of {m}",
        )
        losses = [
            _loss(problem, run.value, data, gammas * unit)
            for problem, run in zip(problems, runs, strict=True)
        ]
        self.losses_ = np.reshape(losses, (len(gammas), len(folds)))
        means, spreads = (
            self.losses_.mean(axis=1),
            self.losses_.std(axis=1, ddof=min(1, len(folds) - 1)),
        )
        least = np.argmin(means)
        self.gamma_ = float(
            gammas[means <= means[least] + spreads[least] / np.sqrt(len(folds))].max()
        )
        return self.gamma_

    def _folds(self, T: FloatArray, y: Any) -> Any:
        y = {"lda": lambda: y.codes[y.known], "sda": lambda: y.codes}.get(
            self.embedding, lambda: None
        )()
        if not isinstance(self.cv, int):
            return self.cv.split(T, y)
        return (KFold if y is None else StratifiedKFold)(
            self.cv, shuffle=True, random_state=0
        ).split(T, y)


def _fold(data: Gathered, inside: IntArray) -> Gathered:
    """The data without the samples outside, T centred by the others."""
    omega = np.zeros_like(data.omega)
    omega[inside] = data.omega[inside]
    return Gathered(
        data.X,
        np.where(omega[:, None] > 0, data.T, 0) - np.outer(omega, _mean(data.T, omega)),
        omega,
    )


def _mean(T: FloatArray, omega: FloatArray) -> FloatArray:
    """b, the intercept of T among samples of weights ω."""
    return omega @ T / (omega @ omega)


def _loss(problem: Problem, cuts: Cuts, data: Gathered, penalties: FloatArray) -> float:
    """The share of the held-out T that a ridge on the m chosen features leaves unexplained."""
    fold, outside = problem.data, problem.data.omega == 0
    features, rounded = problem.rounded(cuts)
    chosen = np.sort(features[rounded.order[: problem.m]])
    place, (G, B) = fold.positions(chosen), fold.gram(chosen)
    W = [solve(G + penalty * np.eye(len(G)), B, assume_a="pos") for penalty in penalties]
    found = (fold.Z[:, place] @ np.hstack(W) - fold.mu[place] @ np.hstack(W))[outside]
    target = (data.T - np.outer(data.omega, _mean(data.T, fold.omega)))[outside]
    left = [target - data.omega[outside, None] * part for part in np.split(found, len(W), axis=1)]
    return min(float(np.sum(part**2)) for part in left) / float(np.sum(target**2))
